// Random initial weights.
//
//   weight matrices      normal(0, initializer_range)
//   o_proj, down_proj    the same times 1 / sqrt(2 * layers): they write into the residual
//                        stream, which adds 2 * layers of them (GPT-2, section 2.3)
//   norms 1, biases 0, gaps between parameters 0
//
// Element i of the p-th parameter is a function of (seed, p, i) alone (normal_values.h), so the
// bits do not depend on the number of threads.
#pragma once

#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/memory/host_store.h"
#include "engine/model/model_spec.h"

namespace penstock {

// REQUIRES: the store has the layout of `spec`.
void InitializeWeights(const ModelSpec& spec, uint64_t seed, HostStore& store, ThreadPool& pool);

}  // namespace penstock
