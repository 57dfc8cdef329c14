// A GPU driver for tests: cards made up, states set from outside.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "engine/base/status.h"
#include "server/devices/device_registry.h"
#include "server/devices/gpu_driver.h"

namespace penstock::server {

inline GpuCard MakeCard(const std::string& uuid, const std::string& name = "Test Card") {
  return {.uuid = uuid,
          .name = name,
          .memory_bytes = int64_t{80} << 30,
          .compute_major = 9,
          .compute_minor = 0};
}

// What the driver reports; thread-safe.
class FakeGpus {
 public:
  explicit FakeGpus(GpuInventory inventory) : inventory_(std::move(inventory)) {}

  void Lose(const std::string& uuid) {
    std::lock_guard lock(mutex_);
    lost_[uuid] = true;
  }
  absl::StatusOr<v1::DeviceReading> Read(const std::string& uuid) {
    std::lock_guard lock(mutex_);
    if (lost_[uuid]) {
      return Error(absl::StatusCode::kUnavailable, reason::kDeviceFailed,
                   uuid + ": the GPU driver says: GPU is lost");
    }
    v1::DeviceReading reading;
    reading.set_utilization(0.5);
    reading.set_power_watts(300);
    return reading;
  }
  const GpuInventory& inventory() const { return inventory_; }

 private:
  const GpuInventory inventory_;
  std::mutex mutex_;
  std::map<std::string, bool> lost_;
};

class FakeGpuDriver final : public GpuDriver {
 public:
  explicit FakeGpuDriver(std::shared_ptr<FakeGpus> gpus) : gpus_(std::move(gpus)) {}
  absl::StatusOr<GpuInventory> List() override { return gpus_->inventory(); }
  absl::StatusOr<v1::DeviceReading> Read(const std::string& uuid) override {
    return gpus_->Read(uuid);
  }

 private:
  std::shared_ptr<FakeGpus> gpus_;
};

// A CPU and these GPUs, for a build of CUDA 13.0. Readings every 5 ms.
inline DeviceRegistryOptions FakeRegistryOptions(std::shared_ptr<FakeGpus> gpus) {
  DeviceRegistryOptions options;
  options.cpu.set_id("cpu");
  options.cpu.set_kind(v1::DEVICE_KIND_CPU);
  options.cuda_version = 13000;
  options.sample_interval = std::chrono::milliseconds(5);
  options.open_driver = [gpus]() -> absl::StatusOr<std::unique_ptr<GpuDriver>> {
    return std::make_unique<FakeGpuDriver>(gpus);
  };
  return options;
}

}  // namespace penstock::server
