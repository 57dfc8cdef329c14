// What executors share: the ops of the host lane, which run on the CPU whatever the backend, and
// how a program's words map to the kernels'.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/exec/executor.h"
#include "engine/kernels/context.h"

namespace penstock {

// AdamW on the planes of `block`, unless `decision` says that nothing changes.
absl::Status UpdateBlock(const cpu::Context& context, HostStore& store, BlockId block,
                         const OptimizerStep& optimizer, const StepDecision& decision);

// Internal unless the loss counted as many labels as the loader.
absl::Status CheckLabelCount(int64_t counted, int64_t expected);

// Whether the program ends with an update of the host store.
bool UpdatesHost(const StepProgram& program);

inline WriteMode ToWriteMode(Accumulate accumulate) {
  return accumulate == Accumulate::kAdd ? WriteMode::kAdd : WriteMode::kOverwrite;
}

inline int64_t RopeTableBytes(const ModelSpec& spec, int64_t positions) {
  return positions * spec.head_dim * static_cast<int64_t>(sizeof(float));
}

}  // namespace penstock
