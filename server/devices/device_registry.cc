#include "server/devices/device_registry.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "google/protobuf/util/time_util.h"
#include "spdlog/spdlog.h"

namespace penstock::server {
using google::protobuf::util::TimeUtil;
namespace {

// What is older says nothing about now.
constexpr std::chrono::seconds kReadingLife{5};
// How long the destructor waits for a thread that may hang in the driver.
constexpr std::chrono::seconds kJoinLimit{2};
// bf16 on tensor cores came with this compute capability.
constexpr int kMinComputeMajor = 8;

std::string CudaName(int version) {
  return absl::StrFormat("%d.%d", version / 1000, version % 1000 / 10);
}

v1::Device MakeDevice(const VisibleGpu& gpu) {
  v1::Device device;
  device.set_id(gpu.uuid);
  device.set_description(gpu.description);
  device.set_kind(v1::DEVICE_KIND_CUDA);
  device.set_memory_bytes(gpu.memory_bytes);
  device.set_health(v1::DEVICE_HEALTH_HEALTHY);
  if (gpu.compute_major < kMinComputeMajor) {
    device.set_health(v1::DEVICE_HEALTH_UNUSABLE);
    device.set_health_message(absl::StrFormat(
        "compute capability %d.%d has no bf16, which needs %d.0 or later; use another card or the "
        "CPU",
        gpu.compute_major, gpu.compute_minor, kMinComputeMajor));
  }
  return device;
}

}  // namespace

// Shared with the thread, which outlives the registry if it hangs in the driver.
struct DeviceRegistry::State {
  using Clock = std::chrono::steady_clock;
  struct Reading {
    v1::DeviceReading reading;
    Clock::time_point time;
  };
  struct Entry {
    v1::Device device;
    std::optional<Reading> reading = {};
  };

  explicit State(DeviceRegistryOptions given) : options(std::move(given)) {}

  const DeviceRegistryOptions options;
  mutable std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex.
  std::vector<Entry> entries;
  std::string missing_gpus;
  bool listed = false, stopping = false, ended = false;
  std::mutex lost_mutex;  // held while `lost` runs, never together with mutex
  std::function<void(const v1::Device&)> lost;

  std::thread thread;

  Entry* Find(const std::string& id) {
    const auto found = std::find_if(entries.begin(), entries.end(),
                                    [&](const Entry& entry) { return entry.device.id() == id; });
    return found == entries.end() ? nullptr : &*found;
  }
  static v1::Device WithReading(const Entry& entry) {
    v1::Device device = entry.device;
    if (entry.reading && Clock::now() - entry.reading->time < kReadingLife) {
      *device.mutable_reading() = entry.reading->reading;
    }
    return device;
  }
  std::optional<v1::Device> Quarantine(const std::string& id, const std::string& why);
  absl::Status AddGpus(GpuDriver& driver);
  void Sample(GpuDriver& driver, const std::string& id);
};

std::optional<v1::Device> DeviceRegistry::State::Quarantine(const std::string& id,
                                                            const std::string& why) {
  std::lock_guard lock(mutex);
  Entry* entry = Find(id);
  if (entry == nullptr || entry->device.kind() != v1::DEVICE_KIND_CUDA ||
      entry->device.health() != v1::DEVICE_HEALTH_HEALTHY) {
    return std::nullopt;
  }
  entry->device.set_health(v1::DEVICE_HEALTH_QUARANTINED);
  entry->device.set_health_message(
      absl::StrCat(why, "; no job starts on it until `penstock release-device ", id,
                   "` or a restart of penstockd"));
  spdlog::error("{} is in quarantine: {}", id, why);
  return WithReading(*entry);
}

absl::Status DeviceRegistry::State::AddGpus(GpuDriver& driver) {
  PENSTOCK_ASSIGN_OR_RETURN(const GpuInventory inventory, driver.List());
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<VisibleGpu> gpus,
                            VisibleGpus(inventory, options.variables));
  std::lock_guard lock(mutex);
  for (const VisibleGpu& gpu : gpus) entries.push_back({.device = MakeDevice(gpu)});
  missing_gpus.clear();
  if (gpus.empty()) {
    missing_gpus = options.variables.cuda_visible_devices
                       ? absl::StrCat("CUDA_VISIBLE_DEVICES of the daemon is \"",
                                      *options.variables.cuda_visible_devices,
                                      "\", which leaves none of ", inventory.cards.size())
                       : "the GPU driver finds no GPU that this process may open";
  }
  // A driver runs programs of its own major version of CUDA and of older ones.
  if (inventory.cuda_version / 1000 >= options.cuda_version / 1000) return absl::OkStatus();
  for (Entry& entry : entries) {
    if (entry.device.kind() != v1::DEVICE_KIND_CUDA) continue;
    entry.device.set_health(v1::DEVICE_HEALTH_UNUSABLE);
    entry.device.set_health_message(absl::StrCat(
        "driver ", inventory.driver_version, " runs CUDA up to ", CudaName(inventory.cuda_version),
        " and this build needs ", CudaName(options.cuda_version),
        "; update the driver, or build with an older CUDA toolkit"));
  }
  return absl::OkStatus();
}

void DeviceRegistry::State::Sample(GpuDriver& driver, const std::string& id) {
  absl::StatusOr<v1::DeviceReading> reading = driver.Read(id);
  if (reading.ok()) {
    *reading->mutable_time() = TimeUtil::GetCurrentTime();
    std::lock_guard lock(mutex);
    Find(id)->reading = {*std::move(reading), Clock::now()};
    return;
  }
  if (ReasonOf(reading.status()) != reason::kDeviceFailed) return;
  const std::optional<v1::Device> device = Quarantine(id, std::string(reading.status().message()));
  std::lock_guard lock(lost_mutex);
  if (device && lost) lost(*device);
}

void DeviceRegistry::Run(const std::shared_ptr<State>& state) {
  absl::StatusOr<std::unique_ptr<GpuDriver>> driver = state->options.open_driver();
  absl::Status status = driver.status();
  if (status.ok()) status = state->AddGpus(**driver);
  std::vector<std::string> ids;
  {
    std::lock_guard lock(state->mutex);
    if (!status.ok()) state->missing_gpus = std::string(status.message());
    for (const State::Entry& entry : state->entries) {
      if (entry.device.kind() == v1::DEVICE_KIND_CUDA) ids.push_back(entry.device.id());
    }
    state->listed = true;
    state->changed.notify_all();
  }
  while (!ids.empty()) {
    for (const std::string& id : ids) state->Sample(**driver, id);
    std::unique_lock lock(state->mutex);
    if (state->changed.wait_for(lock, state->options.sample_interval,
                                [&] { return state->stopping; })) {
      break;
    }
  }
  driver = absl::CancelledError();  // Closed before the end is told.
  std::lock_guard lock(state->mutex);
  state->ended = true;
  state->changed.notify_all();
}

std::unique_ptr<DeviceRegistry> DeviceRegistry::Create(DeviceRegistryOptions options) {
  auto state = std::make_shared<State>(std::move(options));
  v1::Device cpu = state->options.cpu;
  cpu.set_health(v1::DEVICE_HEALTH_HEALTHY);
  state->entries.push_back({.device = std::move(cpu)});
  if (state->options.open_driver == nullptr) {
    state->missing_gpus = "this build has no CUDA: it was made where CMake found no CUDA toolkit";
    return std::unique_ptr<DeviceRegistry>(new DeviceRegistry(std::move(state)));
  }
  state->thread = std::thread([state] { Run(state); });
  {
    std::unique_lock lock(state->mutex);
    if (!state->changed.wait_for(lock, state->options.list_limit, [&] { return state->listed; })) {
      state->missing_gpus = absl::StrCat("the GPU driver has not answered within ",
                                         state->options.list_limit.count() / 1000, " s");
    }
  }
  return std::unique_ptr<DeviceRegistry>(new DeviceRegistry(std::move(state)));
}

DeviceRegistry::DeviceRegistry(std::shared_ptr<State> state) : state_(std::move(state)) {}

DeviceRegistry::~DeviceRegistry() {
  if (!state_->thread.joinable()) return;
  OnLost(nullptr);
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
  const bool ended = state_->changed.wait_for(lock, kJoinLimit, [this] { return state_->ended; });
  lock.unlock();
  if (ended) {
    state_->thread.join();
  } else {
    state_->thread.detach();
  }
}

std::vector<v1::Device> DeviceRegistry::List() const {
  std::lock_guard lock(state_->mutex);
  std::vector<v1::Device> devices;
  for (const State::Entry& entry : state_->entries) devices.push_back(State::WithReading(entry));
  return devices;
}

std::optional<v1::Device> DeviceRegistry::Find(const std::string& id) const {
  std::lock_guard lock(state_->mutex);
  const State::Entry* entry = state_->Find(id);
  if (entry == nullptr) return std::nullopt;
  return State::WithReading(*entry);
}

std::string DeviceRegistry::missing_gpus() const {
  std::lock_guard lock(state_->mutex);
  return state_->missing_gpus;
}

std::optional<v1::DeviceReading> DeviceRegistry::Reading(const std::string& id) const {
  const std::optional<v1::Device> device = Find(id);
  if (!device || !device->has_reading()) return std::nullopt;
  return device->reading();
}

std::optional<v1::Device> DeviceRegistry::Quarantine(const std::string& id,
                                                     const std::string& why) {
  return state_->Quarantine(id, why);
}

absl::StatusOr<v1::Device> DeviceRegistry::Release(const std::string& id) {
  std::lock_guard lock(state_->mutex);
  State::Entry* entry = state_->Find(id);
  if (entry == nullptr) {
    const auto name = [](std::string* out, const State::Entry& known) {
      out->append(known.device.id());
    };
    return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
                 absl::StrCat("id: found \"", id, "\", expected one of ",
                              absl::StrJoin(state_->entries, ", ", name)),
                 {{"field", "id"}, {"found", id}});
  }
  if (entry->device.health() == v1::DEVICE_HEALTH_QUARANTINED) {
    spdlog::info("{} is released from quarantine", id);
    entry->device.set_health(v1::DEVICE_HEALTH_HEALTHY);
    entry->device.clear_health_message();
  }
  return State::WithReading(*entry);
}

void DeviceRegistry::OnLost(std::function<void(const v1::Device&)> lost) {
  std::lock_guard lock(state_->lost_mutex);
  state_->lost = std::move(lost);
}

}  // namespace penstock::server
