#include "engine/base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace penstock {
namespace {

// Well-formed sequences are exactly the encodings of U+0000 to U+10FFFF without surrogates.
std::string Encode(uint32_t code) {
  const auto byte = [](uint32_t value) { return static_cast<char>(value); };
  if (code < 0x80) return {byte(code)};
  if (code < 0x800) return {byte(0xC0 | code >> 6), byte(0x80 | (code & 0x3F))};
  if (code < 0x10000) {
    return {byte(0xE0 | code >> 12), byte(0x80 | (code >> 6 & 0x3F)), byte(0x80 | (code & 0x3F))};
  }
  return {byte(0xF0 | code >> 18), byte(0x80 | (code >> 12 & 0x3F)),
          byte(0x80 | (code >> 6 & 0x3F)), byte(0x80 | (code & 0x3F))};
}

TEST(Utf8Test, EveryCodePointIsOneSequenceAndSurrogatesAreNone) {
  for (uint32_t code = 0; code <= 0x110FFF; ++code) {
    const std::string text = Encode(code);
    const bool valid = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    ASSERT_EQ(Utf8SequenceLength(text), valid ? text.size() : 0) << code;
  }
}

TEST(Utf8Test, OverlongAndCutSequencesAreNone) {
  for (const char* text : {"\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF", "\x80",
                           "\xE2\x82", "\xF5\x80\x80\x80", "\xFF", ""}) {
    EXPECT_EQ(Utf8SequenceLength(text), 0u) << testing::PrintToString(text);
  }
}

TEST(Utf8Test, FindsTheFirstBadByteWhereverItStands) {
  for (size_t at = 0; at < 40; ++at) {
    std::string text(40, 'a');
    EXPECT_EQ(FindInvalidUtf8(text), std::string_view::npos);
    text[at] = '\x80';
    EXPECT_EQ(FindInvalidUtf8(text), at);
    EXPECT_EQ(FindInvalidUtf8(std::string(at, 'a') + "\xE2\x82\xAC" + std::string(9, 'b')),
              std::string_view::npos);
  }
}

}  // namespace
}  // namespace penstock
