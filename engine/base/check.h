// PENSTOCK_CHECK: for our own bugs only. Input, files and devices get a Status instead.
#pragma once

#include <string>
#include <string_view>

namespace penstock {
[[noreturn]] void CheckFailed(const char* file, int line, const char* expression,
                              const std::string& detail);
}  // namespace penstock

// Aborts with file, line, the expression and `detail` (a std::string expression, evaluated
// only on failure; mostly the text of the op at hand).
#define PENSTOCK_CHECK(expression, detail)                                \
  do {                                                                    \
    if (!(expression)) [[unlikely]] {                                     \
      ::penstock::CheckFailed(__FILE__, __LINE__, #expression, (detail)); \
    }                                                                     \
  } while (false)
