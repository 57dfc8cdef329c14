// dataset_info.json, LLaMA-Factory's list of datasets, read with its rules:
//
//   - formatting is alpaca unless given; columns and tags have LLaMA-Factory's defaults;
//   - but where an entry has "columns", every column it does not name is unused, and where it has
//     "tags", every tag it does not name does not occur: the defaults are not kept;
//   - an entry with a hub or script address is that, whatever its file_name says.
//
// Only files are read: no hub, no script, no cloud. What pretrain and sft jobs have no use for
// (ranking, images, ...) is refused by name and not left out in silence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/data/format_spec.h"

namespace penstock {

inline constexpr int64_t kMaxDatasetInfoBytes = int64_t{16} << 20;

struct DatasetInfo {
  FormatSpec format = {};
  // A file, or a directory whose files are all meant. As the entry has it: relative to the
  // directory of dataset_info.json, unless absolute.
  std::string file_name = {};
  std::optional<int64_t> max_samples = {};
};

// The entry `name` of dataset_info.json's text; `what` is the file, for messages. DATA_INVALID,
// with the names that there are, if it has none.
absl::StatusOr<DatasetInfo> ParseDatasetInfo(std::string_view text, std::string_view what,
                                             std::string_view name);

}  // namespace penstock
