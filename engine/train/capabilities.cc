#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "engine/exec/gpu_devices.h"
#include "engine/kernels/cpu_isa.h"
#include "engine/memory/host_memory.h"
#include "engine/model/model_spec.h"

namespace penstock {
namespace {

const char* IsaName(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kPortable:
      return "portable code";
    case CpuIsa::kAvx2:
      return "AVX2";
    case CpuIsa::kAvx512:
      return "AVX-512";
  }
  return "?";
}

}  // namespace

std::vector<DeviceInfo> ListDevices() {
  std::vector<DeviceInfo> devices = {
      {.id = "cpu",
       .description =
           absl::StrCat(std::thread::hardware_concurrency(), " cores, ", IsaName(BestCpuIsa())),
       .kind = DeviceInfo::Kind::kCpu,
       .memory_bytes = ReadHostMemoryLimit().usable_bytes}};
  for (GpuDevice& gpu : ListGpuDevices()) {
    devices.push_back({.id = std::move(gpu.uuid),
                       .description = absl::StrCat(gpu.name, " (no CUDA backend in this version)"),
                       .kind = DeviceInfo::Kind::kCuda,
                       .memory_bytes = gpu.memory_bytes});
  }
  return devices;
}

std::vector<std::string> Capabilities() {
  std::vector<std::string> capabilities = {"backend.cpu", "compute.float32", "data.text",
                                           "data.token_ids_jsonl", "tokenizer.bytes"};
  for (const std::string& family : SupportedFamilies()) {
    capabilities.push_back(absl::StrCat("model.", family));
  }
  return capabilities;
}

}  // namespace penstock
