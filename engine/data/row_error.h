#pragma once

#include <cstdint>
#include <string>

namespace penstock {

// Why a row of a data file cannot be used, and where in the row. It costs the row, not the file.
struct RowError {
  int64_t column = 0;  // in bytes of its line, the first is 1
  std::string message;
  int64_t line = 0;  // lines after the row's first
};

}  // namespace penstock
