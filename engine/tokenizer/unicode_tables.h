// Data of unicode.cc; nothing else uses it. tests/reference/unicode_tables.py writes the .cc file.
#pragma once

#include <cstdint>

namespace penstock {

struct CodePointRange {
  uint32_t first = 0;
  uint32_t last = 0;
};

struct LowercaseMapping {
  uint32_t from = 0;
  uint32_t to = 0;
};

extern const uint32_t kCategoryRuns[];
extern const int64_t kCategoryRunsCount;
extern const CodePointRange kWordExceptions[];
extern const int64_t kWordExceptionsCount;
extern const CodePointRange kNumericExceptions[];
extern const int64_t kNumericExceptionsCount;
extern const CodePointRange kPunctuationExceptions[];
extern const int64_t kPunctuationExceptionsCount;
extern const CodePointRange kMarkExceptions[];
extern const int64_t kMarkExceptionsCount;
extern const CodePointRange kNormalizationInert[];
extern const int64_t kNormalizationInertCount;
extern const LowercaseMapping kLowercaseExceptions[];
extern const int64_t kLowercaseExceptionsCount;

}  // namespace penstock
