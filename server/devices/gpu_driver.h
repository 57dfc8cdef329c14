// What the daemon asks the GPU driver: which cards there are, and how they are. No call makes a
// CUDA context, so the daemon takes nothing of a card and cannot break with one.
//
// NvmlDriver (nvml_driver.h) is the real one; tests have one of their own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/device.pb.h"

namespace penstock::server {

// A part of a card that acts as a card.
struct MigSlice {
  std::string uuid;  // "MIG-..."
  int64_t memory_bytes = 0;
};

struct GpuCard {
  std::string uuid;  // "GPU-..."
  std::string name;
  int64_t memory_bytes = 0;
  int compute_major = 0, compute_minor = 0;  // compute capability
  // With MIG on, jobs can use the slices and not the card.
  bool mig_enabled = false;
  std::vector<MigSlice> slices = {};
};

struct GpuInventory {
  std::string driver_version = {};  // "580.82.07"
  int cuda_version = 0;             // the newest CUDA the driver runs: 1000 * major + 10 * minor
  std::vector<GpuCard> cards = {};  // those this process may open, by PCI bus
};

// Thread-compatible. Calls may take long, and never return when a card hangs.
class GpuDriver {
 public:
  virtual ~GpuDriver() = default;
  virtual absl::StatusOr<GpuInventory> List() = 0;
  // A card's or slice's state now; what the driver does not tell is unset (utilisation and power of
  // a slice). Unavailable / DEVICE_FAILED if the card is lost: it fell off the bus or needs a
  // reset.
  virtual absl::StatusOr<v1::DeviceReading> Read(const std::string& uuid) = 0;
};

}  // namespace penstock::server
