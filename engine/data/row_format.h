// Which columns of a row mean what: the formats that people's datasets come in.
//
//   alpaca             instruction, input, output; history and system if there
//   sharegpt           conversations of {"from", "value"}, turn and turn about
//   messages           OpenAI's: {"role", "content"}, tool_calls and whatever else a template knows
//   prompt_completion  two strings, or two lists of messages
//   text               one string
//
// Alpaca and ShareGPT follow LLaMA-Factory, but a row that it drops with a warning is a bad row
// here: the job is refused unless it allows bad rows to be skipped.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/example.h"
#include "engine/data/format_spec.h"
#include "engine/data/row_error.h"

namespace penstock {

// The format of a dataset whose first row is `row`, if its columns leave no doubt. Otherwise
// InvalidArgument / DATA_INVALID with the columns found, and what would do.
absl::StatusOr<FormatSpec> DetectFormat(const nlohmann::ordered_json& row);

// REQUIRES: `row` is an object. Errors name the column, and the message in it: "messages[2].role".
std::optional<RowError> ToExample(const nlohmann::ordered_json& row, const FormatSpec& spec,
                                  Example& example);

// The columns of `row` that `spec` does not look at.
std::vector<std::string> UnusedColumns(const nlohmann::ordered_json& row, const FormatSpec& spec);

}  // namespace penstock
