// Which GPUs the daemon may give to jobs: all it can open, or those that CUDA_VISIBLE_DEVICES
// names, as a scheduler sets it.
//
// CUDA gives the devices that the variable leaves new numbers, the driver does not, so a number
// means another card to each of them (BC-56). It is turned into a UUID here, once; from here on a
// device is known by its UUID alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/devices/gpu_driver.h"

namespace penstock::server {

struct VisibleGpu {
  std::string uuid;
  std::string description;  // "NVIDIA H100 80GB HBM3", "MIG slice of NVIDIA H100 ..."
  int64_t memory_bytes = 0;
  int compute_major = 0, compute_minor = 0;
};

// The variables as the process has them; unset is not the same as empty.
struct VisibilityVariables {
  std::optional<std::string> cuda_visible_devices = {};
  std::optional<std::string> cuda_device_order = {};
};
VisibilityVariables ReadVisibilityVariables();

// Unset: every card, or the slices of a card with MIG on. Otherwise a list, in its order, of
//   a number            the card of that number; its slices if MIG is on
//   GPU-..., MIG-...    that card or slice, or the only one whose UUID begins so
// "", "-1" and "NoDevFiles" (Slurm's) name none: the daemon runs on the CPU alone.
//
// FailedPrecondition / DEVICE_UNAVAILABLE for a list with an entry that names nothing, twice the
// same, or a card with MIG on by its UUID; and for numbers where cards differ, as CUDA then
// numbers them by speed, unless CUDA_DEVICE_ORDER is PCI_BUS_ID. Nothing is visible then: to go on
// with the rest would be a guess.
absl::StatusOr<std::vector<VisibleGpu>> VisibleGpus(const GpuInventory& inventory,
                                                    const VisibilityVariables& variables);

}  // namespace penstock::server
