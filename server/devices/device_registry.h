// The devices of this daemon: what there is, how it is, and which jobs may not use.
//
//   kHealthy ──Quarantine()──► kQuarantined ──Release()──► kHealthy          kUnusable stays
//
// A thread of its own asks the driver, once at the start for the list and then every second for the
// cards' state: a driver that hangs with a card must not hold up the daemon, whose other threads
// see its last answer or none. Quarantine is not stored: a restart of the daemon ends it, for what
// was wrong may be repaired, and a device that is still broken fails its next job.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/device.pb.h"
#include "server/devices/gpu_driver.h"
#include "server/devices/visible_devices.h"

namespace penstock::server {

struct DeviceRegistryOptions {
  v1::Device cpu;
  // Called on the registry's thread; null: no GPUs, for a build without CUDA.
  std::function<absl::StatusOr<std::unique_ptr<GpuDriver>>()> open_driver;
  VisibilityVariables variables;
  // The CUDA this build needs: 1000 * major + 10 * minor.
  int cuda_version = 0;
  std::chrono::milliseconds sample_interval{1000};
  // How long Create() waits for the list. A driver may take seconds to load its firmware.
  std::chrono::milliseconds list_limit{30'000};
};

// Thread-safe.
class DeviceRegistry {
 public:
  // Returns when the devices are known. Never fails for the GPUs' sake: without any, missing_gpus()
  // says why.
  static std::unique_ptr<DeviceRegistry> Create(DeviceRegistryOptions options);
  DeviceRegistry(const DeviceRegistry&) = delete;
  DeviceRegistry& operator=(const DeviceRegistry&) = delete;
  ~DeviceRegistry();

  // The CPU first, then the GPUs in the order of the driver or of CUDA_VISIBLE_DEVICES. With
  // readings; `job` is left empty.
  std::vector<v1::Device> List() const;
  std::optional<v1::Device> Find(const std::string& id) const;
  // Why there is no GPU; empty if there is one.
  std::string missing_gpus() const;
  // Of a GPU and at most a few seconds old, or nothing.
  std::optional<v1::DeviceReading> Reading(const std::string& id) const;

  // The device after the change; nothing if it was not healthy, or is no GPU of ours.
  std::optional<v1::Device> Quarantine(const std::string& id, const std::string& why);
  // InvalidArgument / REQUEST_INVALID for an unknown id.
  absl::StatusOr<v1::Device> Release(const std::string& id);

  // `lost` is called on the registry's thread when the driver reports a healthy device lost, after
  // it was put in quarantine. Not called any more once this has been called with nullptr.
  void OnLost(std::function<void(const v1::Device&)> lost);

 private:
  struct State;
  explicit DeviceRegistry(std::shared_ptr<State> state);
  static void Run(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
};

}  // namespace penstock::server
