// A token file as micro-batches: raw int32 ids (little-endian), cut into rows of one length. Each
// row is a document of its own, and each of its tokens but the last predicts the next.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/nn/decoder.h"

namespace penstock {

class TokenRows {
 public:
  // Reads whole rows; what is left over at the end is not used. NotFound if the file cannot be
  // read, InvalidArgument if it holds no row or an id outside 0 .. vocab - 1.
  // REQUIRES: sequence_length >= 1.
  static absl::StatusOr<TokenRows> Read(const std::string& path, int64_t sequence_length,
                                        int64_t vocab);

  int64_t rows() const { return static_cast<int64_t>(ids_.size()) / sequence_length_; }

  // Rows first_row .. first_row + num_rows; valid as long as this object.
  // REQUIRES: the rows exist.
  MicroBatchView View(int64_t first_row, int64_t num_rows) const;

  // Of `num_rows` rows.
  int64_t LabelledTokens(int64_t num_rows) const { return num_rows * (sequence_length_ - 1); }

 private:
  TokenRows(std::vector<int32_t> ids, int64_t sequence_length);

  int64_t sequence_length_;
  std::vector<int32_t> ids_, labels_, positions_;
  std::vector<int32_t> starts_;  // 0, sequence_length, ...: the start of a view of any rows
};

}  // namespace penstock
