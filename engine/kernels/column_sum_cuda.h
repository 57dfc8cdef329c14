// Sums over rows on CUDA, for gradients of vectors. Internal to the ops.
//
// Two kernels, so that the order is fixed without atomics: blocks write the sums of some rows each
// to the workspace, and then the blocks' sums are added up. Which rows are a block's, and in what
// order sums are added, depends on the shape and the workspace's size alone.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/bf16.h"
#include "engine/kernels/context.h"

namespace penstock::cuda {

// [chunks, cols] at the workspace's start.
struct PartialSums {
  float* sums;
  int64_t chunks, cols;
};

// Of at most `wanted` chunks, fewer in a workspace too small for them. InvalidArgument, in the name
// of `op`, if it cannot hold one. REQUIRES: cols >= 1.
absl::StatusOr<PartialSums> PlacePartialSums(const Context& context, std::string_view op,
                                             int64_t wanted, int64_t cols);

// Queues out[c] = (out[c] +) sum of column c, zero without chunks.
absl::Status AddPartialSums(const Context& context, std::string_view op, const PartialSums& partial,
                            WriteMode mode, float* out);

// Queues out[c] = (out[c] +) sum_r x[r, c], x [rows, cols].
absl::Status ColumnSum(const Context& context, std::string_view op, const bf16* x, int64_t rows,
                       int64_t cols, WriteMode mode, float* out);

}  // namespace penstock::cuda
