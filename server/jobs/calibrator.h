// Has a worker process measure a device, and keeps the profile. Steps of jobs would be measured
// with it, so nothing may run meanwhile: the caller holds back what waits.
#pragma once

#include <atomic>
#include <string>

#include "absl/status/statusor.h"
#include "penstock/v1/admin_service.pb.h"
#include "penstock/v1/device.pb.h"
#include "server/jobs/profile_store.h"

namespace penstock::server {

struct CalibratorOptions {
  std::string worker_binary;
  std::string storage_directory;  // where checkpoints go
};

class Calibrator {
 public:
  Calibrator(CalibratorOptions options, const ProfileStore& profiles)
      : options_(std::move(options)), profiles_(profiles) {}

  // Blocks for most of a minute. Unavailable / IO_ERROR with the end of the worker's log if it
  // fails, DeadlineExceeded if it takes far too long.
  absl::StatusOr<v1::MachineProfile> Measure(const v1::Device& device) const;
  // From any thread: ends what is measured, and what would be.
  void Stop() { stopped_ = true; }

 private:
  const CalibratorOptions options_;
  const ProfileStore& profiles_;
  std::atomic<bool> stopped_ = false;
};

}  // namespace penstock::server
