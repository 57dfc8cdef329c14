#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/row_error.h"

namespace penstock {

// A row of a file of token ids. `trained` has 0 for an id that is context only, 1 for one to
// learn; it is empty if every id is to be learned.
struct TokenRow {
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;
};

// Parses one line: {"ids": [...]}, {"ids": [...], "labels": [...]} or [...]. Ids are integers
// from 0 to 2^31 - 1, at least one. Labels are as many as the ids; each is the id at its place
// or -100, "not trained" as Hugging Face has it. Anything else is refused: an unknown key might
// be a misspelt "labels". On an error `row` is unspecified.
std::optional<RowError> ParseTokenRow(std::string_view line, TokenRow& row);

// Whether `line`, the first of a file, begins one JSON array that holds all rows: `[` alone, or
// `[` before another array or an object.
bool BeginsJsonArrayOfRows(std::string_view line);

}  // namespace penstock
