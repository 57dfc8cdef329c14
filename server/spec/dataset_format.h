// Column names and tags of a DatasetSpec as the engine's FormatSpec, and back from LLaMA-Factory's
// dataset_info.json.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/dataset_info.h"
#include "engine/data/format_spec.h"
#include "penstock/v1/job_spec.pb.h"

namespace penstock::server {

// The format of rows, or nothing for AUTO, TEXT and TOKEN_IDS_JSONL.
std::optional<RowFormat> ToRowFormat(v1::DataFormat format);

// The usual columns and tags of dataset.format with the names that `dataset` gives. Errors name the
// field under `field`: a name that the format has no use for, a column it cannot do without.
// REQUIRES: ToRowFormat(dataset.format()).
absl::StatusOr<FormatSpec> MakeFormat(const std::string& field, const v1::DatasetSpec& dataset);

// Sets format, columns, tags, alternate_turns and max_rows so that MakeFormat() gives info.format.
void SetFormat(const DatasetInfo& info, v1::DatasetSpec& dataset);

}  // namespace penstock::server
