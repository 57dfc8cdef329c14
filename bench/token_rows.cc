#include "bench/token_rows.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/labels.h"

namespace penstock {
namespace {

// Document starts are int32, as everywhere in a micro-batch.
constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();

}  // namespace

absl::StatusOr<TokenRows> TokenRows::Read(const std::string& path, int64_t sequence_length,
                                          int64_t vocab) {
  std::error_code error;
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path, error));
  std::ifstream file(path, std::ios::binary);
  if (error || !file) {
    return absl::NotFoundError(absl::StrCat("cannot read ", path, ": ", error.message()));
  }
  const int64_t available = bytes / static_cast<int64_t>(sizeof(int32_t));
  const int64_t tokens = available - available % sequence_length;
  if (tokens < sequence_length || tokens > kMaxTokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " holds ", available, " int32 ids, wanted ", sequence_length, " to ", kMaxTokens));
  }
  std::vector<int32_t> ids(tokens);
  file.read(reinterpret_cast<char*>(ids.data()),
            tokens * static_cast<std::streamsize>(sizeof(int32_t)));
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read all of ", path));
  for (int64_t i = 0; i < tokens; ++i) {
    if (ids[i] >= 0 && ids[i] < vocab) continue;
    return absl::InvalidArgumentError(absl::StrCat("token ", i, " of ", path, " is ", ids[i],
                                                   ", the model has ids 0 to ", vocab - 1,
                                                   "; the file must be raw little-endian int32"));
  }
  return TokenRows(std::move(ids), sequence_length);
}

TokenRows::TokenRows(std::vector<int32_t> ids, int64_t sequence_length)
    : sequence_length_(sequence_length), ids_(std::move(ids)) {
  const auto tokens = static_cast<int64_t>(ids_.size());
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t position = i % sequence_length;
    labels_.push_back(position + 1 < sequence_length ? ids_[i + 1] : kIgnoreLabel);
    positions_.push_back(static_cast<int32_t>(position));
    if (position == 0) starts_.push_back(static_cast<int32_t>(i));
  }
  starts_.push_back(static_cast<int32_t>(tokens));
}

MicroBatchView TokenRows::View(int64_t first_row, int64_t num_rows) const {
  const int64_t first = first_row * sequence_length_;
  return {.ids = ids_.data() + first,
          .positions = positions_.data() + first,
          .labels = labels_.data() + first,
          .document_starts = starts_.data(),
          .num_documents = num_rows,
          .tokens = num_rows * sequence_length_};
}

}  // namespace penstock
