// What `penstock top` shows: the daemon, its devices, and the jobs that have not ended.
#pragma once

#include <string>

#include "penstock/v1/admin_service.pb.h"
#include "penstock/v1/job.pb.h"

namespace penstock::client {

struct TopReading {
  v1::GetServerInfoResponse info;
  v1::ListDevicesResponse devices;
  v1::ListJobsResponse jobs;
};

// Running jobs first, then those that wait, in the order in which they will start; 80 columns or
// more.
std::string TopPage(const std::string& endpoint, const TopReading& reading);

}  // namespace penstock::client
