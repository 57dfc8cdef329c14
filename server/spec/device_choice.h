// Which kind of device a job gets: what its spec asks for, held against what the daemon has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/spec/job_spec.h"

namespace penstock::server {

// What a plan has to know of the GPU: the largest that the job may get.
struct PlannedDevice {
  // What the context leaves, or limits.device_memory_bytes if that is less; 0 for the CPU.
  int64_t memory_bytes = 0;
  std::string card;  // as the driver calls it
  std::string id;    // its UUID
};

// The one GPU of a machine that a plan is made for.
DeviceOffer OfferOf(const MachineInfo& machine);

// Sets device.kind to CPU or CUDA and precision.compute to what that device computes in.
//
// A GPU in quarantine counts for a job that asks for CUDA, which then waits for its release, but
// does not draw one that asks for AUTO.
//
// Unavailable / DEVICE_UNAVAILABLE, with the reason for each device, if it asks for a GPU and there
// is none; InvalidArgument / SPEC_INVALID for a UUID the daemon does not have and for fields
// that have no effect; Unimplemented / FEATURE_UNSUPPORTED for a compute type that the device
// lacks.
absl::StatusOr<PlannedDevice> ResolveDevice(const DeviceOffer& offer, v1::JobSpec& spec);

// A job that asked for AUTO and goes to the CPU because the daemon's GPUs are out of service may
// take a hundred times as long as its owner expects.
void AddDeviceWarning(const DeviceOffer& offer, const v1::JobSpec& given,
                      const v1::JobSpec& resolved, std::vector<std::string>& warnings);

}  // namespace penstock::server
