#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/engine.h"
#include "engine/exec/gpu_devices.h"
#include "engine/kernels/cpu_isa.h"
#include "engine/memory/host_memory.h"
#include "engine/model/model_spec.h"
#include "engine/plan/machine_profile.h"

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

absl::StatusOr<MachineInfo> FindMachine(const std::string& name) {
  PENSTOCK_ASSIGN_OR_RETURN(const NamedProfile profile, FindMachineProfile(name));
  return MachineInfo{.name = name,
                     .card = std::string(profile.card),
                     .device_memory_bytes = profile.device_memory_bytes,
                     .host_memory_bytes = profile.host_memory_bytes};
}

CpuInfo DescribeCpu() {
  return {.description =
              absl::StrCat(std::thread::hardware_concurrency(), " cores, ", IsaName(BestCpuIsa())),
          .memory_bytes = ReadHostMemoryLimit().usable_bytes};
}

int CudaVersionOfBuild() { return CudaToolkitVersion(); }

std::vector<std::string> Capabilities() {
  std::vector<std::string> capabilities = {
      "backend.cpu",          "compute.float32", "data.text",
      "data.token_ids_jsonl", "data.text_rows",  "data.alpaca",
      "data.sharegpt",        "data.messages",   "data.prompt_completion",
      "tokenizer.bytes",      "tokenizer.model"};
  if (CudaVersionOfBuild() != 0) {
    capabilities.push_back("backend.cuda");
    capabilities.push_back("compute.bfloat16");
  }
  for (const std::string& family : SupportedFamilies()) {
    capabilities.push_back(absl::StrCat("model.", family));
  }
  return capabilities;
}

}  // namespace penstock
