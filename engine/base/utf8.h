#pragma once

#include <cstddef>
#include <string_view>

namespace penstock {

// Length of the well-formed UTF-8 sequence at the head of `text`; 0 if there is none. Overlong
// forms, surrogates and what lies beyond U+10FFFF are not well-formed.
size_t Utf8SequenceLength(std::string_view text);

// Where the first byte stands that is not part of well-formed UTF-8; npos if there is none.
size_t FindInvalidUtf8(std::string_view text);

}  // namespace penstock
