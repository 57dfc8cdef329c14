#include "engine/tokenizer/utf8.h"

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
    ASSERT_EQ(FirstInvalidUtf8(text), valid ? -1 : 8) << uint32_t{c};
    if (!valid) continue;
    const char* p = text.data() + 8;
    ASSERT_TRUE(NextUtf8(p) == c);
    ASSERT_TRUE(PreviousUtf8(p) == c);
    ASSERT_EQ(p, text.data() + 8);
  }
}

TEST(Utf8Test, FindsTheFirstInvalidByte) {
  EXPECT_EQ(FirstInvalidUtf8(""), -1);
  EXPECT_EQ(FirstInvalidUtf8("abc\xff"), 3);
  EXPECT_EQ(FirstInvalidUtf8("\x80"), 0);
  EXPECT_EQ(FirstInvalidUtf8("\xc0\xaf"), 0);           // overlong
  EXPECT_EQ(FirstInvalidUtf8("a\xe0\x80\xaf"), 1);      // overlong
  EXPECT_EQ(FirstInvalidUtf8("a\xf0\x80\x80\xaf"), 1);  // overlong
  EXPECT_EQ(FirstInvalidUtf8("\xf5\x80\x80\x80"), 0);   // beyond U+10FFFF
  EXPECT_EQ(FirstInvalidUtf8("12345678\xe6\x97"), 8);   // cut off
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
