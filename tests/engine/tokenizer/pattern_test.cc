#include "engine/tokenizer/pattern.h"

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using Matches = std::vector<std::pair<size_t, size_t>>;

Pattern Make(Pattern::Engine engine, const std::string& expression) {
  auto pattern = Pattern::RegexOn(engine, expression, "here");
  EXPECT_TRUE(pattern.ok()) << pattern.status();
  return *std::move(pattern);
}

Matches MatchesOf(const Pattern& pattern, const std::string& text) {
  Matches matches;
  EXPECT_TRUE(pattern
                  .ForEachMatch(text,
                                [&](size_t begin, size_t end) {
                                  matches.emplace_back(begin, end);
                                  return absl::OkStatus();
                                })
                  .ok());
  return matches;
}

// GPT-2, Llama 3, Qwen 2 and 3.5, GPT-OSS, DeepSeek-V3, Mistral's Tekken; then what else the
// dialect has.
const char* const kScanned[] = {
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"(\p{N}{1,3})",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)"
    "\r\n"
    R"(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)"
    "\r\n"
    R"(]*|\s*[)"
    "\r\n"
    R"(]+|\s+(?!\S)|\s+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"(\p{Lu}\P{L}*a?|\d{2,}\.|[^\S ]|[a-c]{1,2}b(?!\p{Ll})|(?i:k|re)x)",
};

// Characters that Unicode 14, which Debian's Oniguruma has, and 16 agree about.
std::string RandomText(std::mt19937& random) {
  static const std::string kLikely[] = {
      "a",      "b",      "c",      "Z",      "s",      "S",  "ſ",  "K",    "k",  "re",
      "'s",     "'T",     "'lL",    "'",      "é",      "0",  "1",  "٣",    "½",  "²",
      "Ⅷ",      " ",      " ",      "  ",     "\t",     "\r", "\n", "\r\n", "\v", "\u0085",
      "\u00a0", "\u2003", "\u3000", "\u180e", "\u200b", "_",  "-",  ".",    ",",  "!",
      "/",      "(",      "]",      "^",      "日",     "あ", "ア", "ー",   "한", "ा",
      "\u0301", "😀",      "𝒜",      "ǅ",      "Ω",      "ж",  "Ж",  "€",    "+"};
  std::string text;
  for (auto count = random() % 24; count > 0; --count) {
    if (random() % 8 == 0) {
      AppendUtf8(static_cast<char32_t>(random() % 0x530), text);
    } else {
      text += kLikely[random() % std::size(kLikely)];
    }
  }
  return text;
}

TEST(ScanProgramTest, MatchesWhatOnigurumaMatches) {
  std::mt19937 random(1);
  for (const char* expression : kScanned) {
    const Pattern scanned = Make(Pattern::Engine::kBest, expression);
    const Pattern searched = Make(Pattern::Engine::kOniguruma, expression);
    ASSERT_TRUE(scanned.has_scan_program()) << expression;
    ASSERT_FALSE(searched.has_scan_program());
    for (int i = 0; i < 3000; ++i) {
      const std::string text = RandomText(random);
      ASSERT_EQ(MatchesOf(scanned, text), MatchesOf(searched, text)) << expression << "\n" << text;
    }
  }
}

TEST(ScanProgramTest, LeavesToOnigurumaWhatItDoesNotKnow) {
  for (const char* expression :
       {"a*",         "a|",        "(a)",          "a+?",       "a++",    "a{0,0}b",
        ".",          "^a",        "a$",           R"(\w)",     R"(\ba)", "(?<=a)b",
        "(?=a)b",     "[a&&b]",    "[[:alpha:]]",  "[a[b]]",    "[a-]",   R"([\w])",
        R"(\p{Han})", R"(\p{^L})", R"(\x41)",      "(?i:ss)",   "(?i:é)", "(?i:st)x",
        "(?:a|b)",    "(?i)a",     R"(\p{L}{2}+)", R"((?i:a)+)"}) {
    const auto pattern = Pattern::Regex(expression, "here");
    ASSERT_TRUE(pattern.ok()) << expression << pattern.status();
    EXPECT_FALSE(pattern->has_scan_program()) << expression;
  }
}

TEST(PatternTest, EmptyMatchesDoNotFollowAMatch) {
  const Pattern pattern = Make(Pattern::Engine::kBest, "a*");
  EXPECT_EQ(MatchesOf(pattern, "baac"), (Matches{{0, 0}, {1, 3}, {4, 4}}));
  EXPECT_EQ(MatchesOf(pattern, "日"), (Matches{{0, 0}, {3, 3}}));
  EXPECT_EQ(MatchesOf(Pattern::Literal(""), "ab"), (Matches{{0, 0}, {1, 1}, {2, 2}}));
  EXPECT_EQ(MatchesOf(Pattern::Literal("aa"), "aaaaa"), (Matches{{0, 2}, {2, 4}}));
}

TEST(PatternTest, AnErrorEndsTheSearch) {
  int64_t calls = 0;
  const Pattern pattern = Pattern::Literal("a");
  const absl::Status status = pattern.ForEachMatch("aaaa", [&](size_t, size_t) {
    return ++calls == 2 ? absl::CancelledError("enough") : absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(calls, 2);
}

TEST(PatternTest, StopsBeforeAnExpressionTakesForEver) {
  const std::string text = std::string(60, 'a') + "b";
  for (const char* expression : {"(a+)+$", "(a|aa)+$", "(a*)*$"}) {
    const absl::Status status =
        Make(Pattern::Engine::kBest, expression).ForEachMatch(text, [](size_t, size_t) {
          return absl::OkStatus();
        });
    EXPECT_EQ(ReasonOf(status), reason::kDataInvalid) << expression;
    EXPECT_THAT(std::string(status.message()), HasSubstr(expression));
  }
  // Cubic in the scanner.
  const Pattern scanned = Make(Pattern::Engine::kBest, "a*a*a*a*b");
  ASSERT_TRUE(scanned.has_scan_program());
  const absl::Status status =
      scanned.ForEachMatch(std::string(3000, 'a'), [](size_t, size_t) { return absl::OkStatus(); });
  EXPECT_EQ(ReasonOf(status), reason::kDataInvalid);
}

TEST(PatternTest, SaysWhatIsWrongWithAnExpression) {
  const auto pattern = Pattern::Regex("a(b", "tokenizer.json: pre_tokenizer.pattern.Regex");
  ASSERT_FALSE(pattern.ok());
  EXPECT_EQ(ReasonOf(pattern.status()), reason::kModelInvalid);
  EXPECT_THAT(std::string(pattern.status().message()),
              HasSubstr("tokenizer.json: pre_tokenizer.pattern.Regex \"a(b\""));
  EXPECT_FALSE(Pattern::Regex(std::string(70'000, 'a'), "here").ok());
  EXPECT_FALSE(Pattern::Regex(std::string(20'000, '('), "here").ok());
}

}  // namespace
}  // namespace penstock
