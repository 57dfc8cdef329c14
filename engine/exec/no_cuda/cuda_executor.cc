#include "engine/base/status.h"
#include "engine/exec/executor.h"

namespace penstock {

absl::StatusOr<std::unique_ptr<Executor>> CreateCudaExecutor(const ModelSpec&, HostStore&,
                                                             const ExecutorOptions&) {
  return Error(absl::StatusCode::kUnimplemented, reason::kDeviceUnavailable,
               "this build has no CUDA: it was made where CMake found no CUDA toolkit; use the CPU "
               "backend, or build again on a machine with the toolkit");
}

}  // namespace penstock
