// How RoundToBf16 is cut when it works in place. Internal to round_gradients_*; the contract is
// round_gradients.h's.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/base/bf16.h"
#include "engine/base/status.h"
#include "engine/kernels/contract.h"

namespace penstock {

// The array is null only if it is empty, and `out` is apart from `in` or starts where it does.
inline absl::Status CheckRoundToBf16(const float* in, const bf16* out, int64_t count) {
  PENSTOCK_RETURN_IF_ERROR(Require(count >= 0, "RoundToBf16", "count >= 0", {{"count", count}}));
  if (count == 0) return absl::OkStatus();
  const uintptr_t from = reinterpret_cast<uintptr_t>(in), to = reinterpret_cast<uintptr_t>(out);
  const bool apart = to + count * sizeof(bf16) <= from || from + count * sizeof(float) <= to;
  return Require(in != nullptr && out != nullptr && (apart || from == to), "RoundToBf16",
                 "arrays in and out that share no byte or start at the same one",
                 {{"out - in", static_cast<int64_t>(to - from)}});
}

// Calls one(begin, end) for ranges that cover [first, count) in order, the results of each of
// which lie in bytes that only elements before it were read from: elements [n, 2n) are read
// from bytes [4n, 8n) and written to bytes [2n, 4n). So a range may be done in any order within.
inline absl::Status ForDoublingRanges(
    int64_t first, int64_t count, absl::FunctionRef<absl::Status(int64_t begin, int64_t end)> one) {
  for (int64_t begin = first; begin < count; begin *= 2) {
    PENSTOCK_RETURN_IF_ERROR(one(begin, std::min(2 * begin, count)));
  }
  return absl::OkStatus();
}

}  // namespace penstock
