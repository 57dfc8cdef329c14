#include "engine/base/utf8.h"

#include <string>

#include "gtest/gtest.h"

namespace penstock {
namespace {

TEST(Utf8Test, AcceptsEveryCharacterAndNothingElse) {
  for (char32_t c = 0; c < 0x120000; ++c) {
    std::string text = "12345678";  // so that the word-wise start is in the way
    AppendUtf8(c, text);
    text += "z";
    const bool valid = c < 0x110000 && (c < 0xD800 || c > 0xDFFF);
    ASSERT_EQ(FindInvalidUtf8(text), valid ? std::string_view::npos : 8) << uint32_t{c};
    const std::string_view character = std::string_view(text).substr(8, text.size() - 9);
    ASSERT_EQ(Utf8SequenceLength(character), valid ? character.size() : 0) << uint32_t{c};
    if (!valid) continue;
    const char* p = text.data() + 8;
    ASSERT_TRUE(NextUtf8(p) == c);
    ASSERT_TRUE(PreviousUtf8(p) == c);
    ASSERT_EQ(p, text.data() + 8);
  }
}

TEST(Utf8Test, FindsTheFirstInvalidByte) {
  EXPECT_EQ(FindInvalidUtf8(""), std::string_view::npos);
  EXPECT_EQ(FindInvalidUtf8("abc\xff"), 3u);
  EXPECT_EQ(FindInvalidUtf8("\x80"), 0u);
  EXPECT_EQ(FindInvalidUtf8("\xc0\xaf"), 0u);           // overlong
  EXPECT_EQ(FindInvalidUtf8("a\xe0\x80\xaf"), 1u);      // overlong
  EXPECT_EQ(FindInvalidUtf8("a\xf0\x80\x80\xaf"), 1u);  // overlong
  EXPECT_EQ(FindInvalidUtf8("\xf5\x80\x80\x80"), 0u);   // beyond U+10FFFF
  EXPECT_EQ(FindInvalidUtf8("12345678\xe6\x97"), 8u);   // cut off
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

// As Python's bytes.decode("utf-8", "replace").
TEST(Utf8Test, ReplacesEachMaximalBrokenPart) {
  const std::string r = "\uFFFD";
  EXPECT_EQ(ReplaceInvalidUtf8("déjà 日本"), "déjà 日本");
  EXPECT_EQ(ReplaceInvalidUtf8("a\xffz"), "a" + r + "z");
  EXPECT_EQ(ReplaceInvalidUtf8("\xe6\x97"), r);
  EXPECT_EQ(ReplaceInvalidUtf8("\xe6\x97z"), r + "z");
  EXPECT_EQ(ReplaceInvalidUtf8("\xed\xa0\x80"), r + r + r);  // a surrogate
  EXPECT_EQ(ReplaceInvalidUtf8("\xf0\x9f\x98\xe6\x97\xa5"), r + "日");
  EXPECT_EQ(ReplaceInvalidUtf8("\xc0\xaf"), r + r);
  EXPECT_EQ(ReplaceInvalidUtf8("\xf4\x90\x80\x80"), r + r + r + r);
}

}  // namespace
}  // namespace penstock
