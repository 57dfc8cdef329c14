// What schedule.h decides about, taken from the job table, the store and the devices.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/devices/device_registry.h"
#include "server/jobs/device_use.h"
#include "server/jobs/job_table.h"
#include "server/jobs/schedule.h"

namespace penstock::server {

// The devices that jobs can have.
std::vector<ScheduleDevice> ScheduleDevices(const DeviceRegistry& devices);

// Device time that counts now, attempts that run included.
std::map<DeviceUser, double> CountDeviceUse(JobTable& table, absl::Time now);

struct SnapshotArgs {
  Admission admission = Admission::kOpen;
  std::string hold_message;
  Quotas quotas;
  int64_t host_memory_bytes = 0;
  int64_t aging_seconds = 0;
  absl::Time now;
};
ScheduleSnapshot TakeScheduleSnapshot(JobTable& table, const DeviceRegistry& devices,
                                      const SnapshotArgs& args);

}  // namespace penstock::server
