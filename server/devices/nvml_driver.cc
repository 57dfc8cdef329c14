// NVML's header is a part of the CUDA toolkit that many installations leave out, and the daemon
// shall be built without a toolkit at all. The dozen functions it needs are declared here; their
// names, layouts and numbers are fixed, for NVML's ABI only ever grows (hence the _v2 names).

#include "server/devices/nvml_driver.h"

#include <dlfcn.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "spdlog/spdlog.h"

namespace penstock::server {
namespace {

using NvmlDevice = struct nvmlDevice_st*;
using NvmlReturn = int;

constexpr NvmlReturn kSuccess = 0;
constexpr NvmlReturn kGpuIsLost = 15;
constexpr NvmlReturn kResetRequired = 16;
constexpr unsigned kMigOn = 1;
constexpr int kTemperatureOfGpu = 0;
constexpr unsigned kTextBytes = 96;  // of a UUID or a name, both at most

struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlUtilization {
  unsigned gpu, memory;  // percent
};

// Functions of the library; those after the blank line are missing in old drivers.
struct Functions {
  NvmlReturn (*init)();
  NvmlReturn (*shutdown)();
  const char* (*error_string)(NvmlReturn);
  NvmlReturn (*driver_version)(char*, unsigned);
  NvmlReturn (*cuda_version)(int*);
  NvmlReturn (*count)(unsigned*);
  NvmlReturn (*by_index)(unsigned, NvmlDevice*);
  NvmlReturn (*by_uuid)(const char*, NvmlDevice*);
  NvmlReturn (*uuid)(NvmlDevice, char*, unsigned);
  NvmlReturn (*name)(NvmlDevice, char*, unsigned);
  NvmlReturn (*memory)(NvmlDevice, NvmlMemory*);
  NvmlReturn (*compute_capability)(NvmlDevice, int*, int*);
  NvmlReturn (*utilization)(NvmlDevice, NvmlUtilization*);
  NvmlReturn (*temperature)(NvmlDevice, int, unsigned*);
  NvmlReturn (*power)(NvmlDevice, unsigned*);  // milliwatts

  NvmlReturn (*mig_mode)(NvmlDevice, unsigned*, unsigned*);
  NvmlReturn (*max_mig_count)(NvmlDevice, unsigned*);
  NvmlReturn (*mig_by_index)(NvmlDevice, unsigned, NvmlDevice*);
};

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

template <typename Function>
bool Load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

absl::StatusOr<Functions> LoadFunctions(void* library) {
  Functions nvml = {};
  const bool complete =
      Load(library, "nvmlInit_v2", nvml.init) && Load(library, "nvmlShutdown", nvml.shutdown) &&
      Load(library, "nvmlErrorString", nvml.error_string) &&
      Load(library, "nvmlSystemGetDriverVersion", nvml.driver_version) &&
      Load(library, "nvmlSystemGetCudaDriverVersion_v2", nvml.cuda_version) &&
      Load(library, "nvmlDeviceGetCount_v2", nvml.count) &&
      Load(library, "nvmlDeviceGetHandleByIndex_v2", nvml.by_index) &&
      Load(library, "nvmlDeviceGetHandleByUUID", nvml.by_uuid) &&
      Load(library, "nvmlDeviceGetUUID", nvml.uuid) &&
      Load(library, "nvmlDeviceGetName", nvml.name) &&
      Load(library, "nvmlDeviceGetMemoryInfo", nvml.memory) &&
      Load(library, "nvmlDeviceGetCudaComputeCapability", nvml.compute_capability) &&
      Load(library, "nvmlDeviceGetUtilizationRates", nvml.utilization) &&
      Load(library, "nvmlDeviceGetTemperature", nvml.temperature) &&
      Load(library, "nvmlDeviceGetPowerUsage", nvml.power);
  if (!complete) {
    return Error(absl::StatusCode::kUnavailable, reason::kDeviceUnavailable,
                 "libnvidia-ml.so.1 of the GPU driver lacks functions of 2018; update the driver");
  }
  if (!Load(library, "nvmlDeviceGetMigMode", nvml.mig_mode) ||
      !Load(library, "nvmlDeviceGetMaxMigDeviceCount", nvml.max_mig_count) ||
      !Load(library, "nvmlDeviceGetMigDeviceHandleByIndex", nvml.mig_by_index)) {
    nvml.mig_mode = nullptr;
  }
  return nvml;
}

class NvmlDriver final : public GpuDriver {
 public:
  NvmlDriver(Library library, const Functions& nvml) : library_(std::move(library)), nvml_(nvml) {}
  NvmlDriver(const NvmlDriver&) = delete;
  NvmlDriver& operator=(const NvmlDriver&) = delete;
  ~NvmlDriver() override {
    if (initialized_) nvml_.shutdown();
  }

  absl::Status Initialize() {
    PENSTOCK_RETURN_IF_ERROR(Check(nvml_.init(), "nvmlInit"));
    initialized_ = true;
    return absl::OkStatus();
  }

  absl::StatusOr<GpuInventory> List() override {
    GpuInventory inventory;
    std::array<char, kTextBytes> text{};
    PENSTOCK_RETURN_IF_ERROR(
        Check(nvml_.driver_version(text.data(), text.size()), "the driver's version"));
    inventory.driver_version = text.data();
    PENSTOCK_RETURN_IF_ERROR(
        Check(nvml_.cuda_version(&inventory.cuda_version), "the driver's CUDA version"));
    unsigned count = 0;
    PENSTOCK_RETURN_IF_ERROR(Check(nvml_.count(&count), "the number of GPUs"));
    for (unsigned index = 0; index < count; ++index) {
      NvmlDevice device = nullptr;
      // A container or cgroup may forbid some; CUDA does not number those either.
      if (nvml_.by_index(index, &device) != kSuccess) continue;
      absl::StatusOr<GpuCard> card = Describe(device);
      if (card.ok()) {
        inventory.cards.push_back(*std::move(card));
      } else {  // One lost card must not hide the others.
        spdlog::error("GPU {} is left out: {}", index, std::string(card.status().message()));
      }
    }
    return inventory;
  }

  absl::StatusOr<v1::DeviceReading> Read(const std::string& uuid) override {
    NvmlDevice device = nullptr;
    PENSTOCK_RETURN_IF_ERROR(Check(nvml_.by_uuid(uuid.c_str(), &device), uuid));
    v1::DeviceReading reading;
    NvmlMemory memory;
    // Every card can tell this one, so it shows a card that is lost.
    PENSTOCK_RETURN_IF_ERROR(Check(nvml_.memory(device, &memory), uuid));
    reading.set_memory_used_bytes(static_cast<int64_t>(memory.used));
    NvmlUtilization utilization;
    if (nvml_.utilization(device, &utilization) == kSuccess) {
      reading.set_utilization(utilization.gpu / 100.0);
    }
    unsigned value = 0;
    if (nvml_.temperature(device, kTemperatureOfGpu, &value) == kSuccess) {
      reading.set_temperature_celsius(value);
    }
    if (nvml_.power(device, &value) == kSuccess) reading.set_power_watts(value / 1000.0);
    return reading;
  }

 private:
  absl::Status Check(NvmlReturn result, const std::string& what) const {
    if (result == kSuccess) return absl::OkStatus();
    const bool lost = result == kGpuIsLost || result == kResetRequired;
    return Error(absl::StatusCode::kUnavailable,
                 lost ? reason::kDeviceFailed : reason::kDeviceUnavailable,
                 absl::StrCat(what, ": the GPU driver says: ", nvml_.error_string(result),
                              lost ? "; look at dmesg, reset the card or restart the machine" : ""),
                 {{"nvml_code", absl::StrCat(result)}});
  }

  absl::StatusOr<std::string> Uuid(NvmlDevice device) const {
    std::array<char, kTextBytes> text{};
    PENSTOCK_RETURN_IF_ERROR(
        Check(nvml_.uuid(device, text.data(), text.size()), "the UUID of a GPU"));
    return std::string(text.data());
  }

  absl::StatusOr<int64_t> MemoryBytes(NvmlDevice device) const {
    NvmlMemory memory;
    PENSTOCK_RETURN_IF_ERROR(Check(nvml_.memory(device, &memory), "the memory of a GPU"));
    return static_cast<int64_t>(memory.total);
  }

  absl::StatusOr<GpuCard> Describe(NvmlDevice device) const {
    GpuCard card;
    PENSTOCK_ASSIGN_OR_RETURN(card.uuid, Uuid(device));
    PENSTOCK_ASSIGN_OR_RETURN(card.memory_bytes, MemoryBytes(device));
    std::array<char, kTextBytes> text{};
    PENSTOCK_RETURN_IF_ERROR(Check(nvml_.name(device, text.data(), text.size()), card.uuid));
    card.name = text.data();
    PENSTOCK_RETURN_IF_ERROR(Check(
        nvml_.compute_capability(device, &card.compute_major, &card.compute_minor), card.uuid));
    unsigned mode = 0, pending = 0, slots = 0;
    if (nvml_.mig_mode == nullptr || nvml_.mig_mode(device, &mode, &pending) != kSuccess ||
        mode != kMigOn || nvml_.max_mig_count(device, &slots) != kSuccess) {
      return card;
    }
    card.mig_enabled = true;
    for (unsigned index = 0; index < slots; ++index) {
      NvmlDevice slice = nullptr;
      if (nvml_.mig_by_index(device, index, &slice) != kSuccess) continue;  // an empty place
      PENSTOCK_ASSIGN_OR_RETURN(std::string uuid, Uuid(slice));
      PENSTOCK_ASSIGN_OR_RETURN(const int64_t bytes, MemoryBytes(slice));
      card.slices.push_back({.uuid = std::move(uuid), .memory_bytes = bytes});
    }
    return card;
  }

  Library library_;
  Functions nvml_;
  bool initialized_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GpuDriver>> OpenNvml() {
  Library library(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
  if (library == nullptr) {
    return absl::NotFoundError("this machine has no NVIDIA driver (libnvidia-ml.so.1)");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Functions functions, LoadFunctions(library.get()));
  auto driver = std::make_unique<NvmlDriver>(std::move(library), functions);
  PENSTOCK_RETURN_IF_ERROR(driver->Initialize());
  return driver;
}

}  // namespace penstock::server
