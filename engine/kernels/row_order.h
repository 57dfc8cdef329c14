// Rows in the order of their keys, rows of one key in ascending order: a stable sort on the device,
// linear in the rows. Internal to embedding*.
//
// A radix sort with digits of 9 bits, from the lowest: two passes for vocabularies up to 262,144. A
// pass counts the digits of each tile of rows, then adds the counts up (by digit, then by tile:
// where each tile's rows of each digit go) and moves the rows there. The order is unique, so
// neither timing nor tiles can change a bit of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/base/units.h"
#include "engine/kernels/context.h"

namespace penstock::cuda {

struct RowOrderTuning {
  static constexpr int kDigitBits = 9;
  static constexpr int kBins = 1 << kDigitBits;
  static constexpr int64_t kTileRows = kBins;
  static constexpr int64_t kAlignment = 256;  // of each array in the scratch
};

struct RowOrder {
  const int32_t* keys;  // [rows], ascending
  const int32_t* rows;  // [rows]: whose keys they are
};

// Keys and rows before and after a pass, and the counts.
constexpr int64_t RowOrderScratchBytes(int64_t rows) {
  using Tuning = RowOrderTuning;
  const int64_t array = RoundUp(rows * int64_t{sizeof(int32_t)}, Tuning::kAlignment);
  const int64_t counts = CeilDiv(rows, Tuning::kTileRows) * Tuning::kBins;
  return 4 * array + counts * int64_t{sizeof(uint32_t)};
}

// Queues the sort of keys [rows], each in [0, limit); the result lies in `scratch`, which has
// RowOrderScratchBytes. REQUIRES: 1 <= rows < 2^31. `op` names the caller in errors.
absl::StatusOr<RowOrder> OrderRows(const Context& context, std::string_view op, const int32_t* keys,
                                   int64_t rows, int64_t limit, std::byte* scratch);

}  // namespace penstock::cuda
