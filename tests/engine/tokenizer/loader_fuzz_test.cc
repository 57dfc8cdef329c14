// Damaged tokenizer files: whatever is done to one, loading ends with a tokenizer or an error, and
// a tokenizer that loads can be used. The sanitizers watch. The same files every time.
#include <random>
#include <string>

#include "tests/engine/tokenizer/testing.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr int kRounds = 12;  // for each golden and kind of damage

const std::string& Sample() {
  static const std::string* const sample = new std::string(
      "The quick  brown fox's 1234 déjà\r\n\t日本 e\u0301<s> <|end|> [INST]<L> 👩‍👧 "
      "\u0085 "
      "ÉTÉ");
  return *sample;
}

// Returns whether the file loads.
bool Use(const std::string& file) {
  const auto tokenizer = ModelTokenizer::Create({.directory = "m", .tokenizer_json = file});
  if (!tokenizer.ok()) {
    EXPECT_FALSE(tokenizer.status().message().empty());
    return false;
  }
  Encoding encoding;
  const EncodeOptions options = {.post_process = PostProcess::kAddTokens};
  if (!(*tokenizer)->EncodeWithSpans(Sample(), options, encoding).ok()) return true;
  EXPECT_EQ(encoding.ids.size(), encoding.spans.size());
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    EXPECT_LT(encoding.ids[i], (*tokenizer)->vocab_size());
    EXPECT_LE(0, encoding.spans[i].begin);
    EXPECT_LE(encoding.spans[i].begin, encoding.spans[i].end);
    EXPECT_LE(encoding.spans[i].end, static_cast<int64_t>(Sample().size()));
  }
  (*tokenizer)->Decode(encoding.ids, ModelTokenizer::SpecialIds::kLeaveOut);
  return true;
}

std::string DamageBytes(std::string text, std::mt19937& random) {
  for (auto count = random() % 3 + 1; count > 0; --count) {
    const size_t at = random() % text.size();
    switch (random() % 4) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, random() % 20);
        break;
      case 2:
        text.insert(at, text, random() % text.size(), random() % 20);
        break;
      default:
        text[at] = "{}[]\",:\\0"[random() % 9];
    }
    if (text.empty()) text = "{";
  }
  return text;
}

json RandomValue(std::mt19937& random) {
  switch (random() % 12) {
    case 0:
      return nullptr;
    case 1:
      return true;
    case 2:
      return -1;
    case 3:
      return int64_t{1} << (random() % 63);
    case 4:
      return 0.5;
    case 5:
      return "";
    case 6:
      return "a*|(?=b)|\\s";
    case 7:
      return json::array();
    case 8:
      return json::object();
    case 9:
      return false;
    case 10:
      return "Sequence";
    default:
      return "日";
  }
}

// Changes one value somewhere outside the vocabulary and the merges, which have the most.
void DamageValue(json& root, std::mt19937& random) {
  json* value = &root;
  while (value->is_structured() && !value->empty() && random() % 6 != 0) {
    const size_t index = random() % value->size();
    auto child = value->begin();
    std::advance(child, static_cast<std::ptrdiff_t>(index));
    const bool large = child->size() > 100 && random() % 4 != 0;
    value = large ? value : &*child;
  }
  switch (random() % 3) {
    case 0:
      if (value->is_structured() && !value->empty()) {
        value->erase(value->begin());
        break;
      }
      [[fallthrough]];
    default:
      *value = RandomValue(random);
  }
}

TEST(TokenizerLoaderFuzzTest, DamagedBytesAndValuesAreRefusedOrUsed) {
  std::mt19937 random(20261128);
  int64_t loaded = 0;
  int64_t refused = 0;
  for (const std::string& name : testing::GoldenNames()) {
    const json tokenizer = testing::ReadGolden(name)["tokenizer"];
    const std::string text = tokenizer.dump();
    for (int round = 0; round < kRounds; ++round) {
      ++(Use(DamageBytes(text, random)) ? loaded : refused);
      json damaged = tokenizer;
      DamageValue(damaged, random);
      ++(Use(damaged.dump()) ? loaded : refused);
    }
  }
  // Both happen: the damage is neither too small to matter nor too great to get past the parser.
  EXPECT_GT(loaded, 50);
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace penstock
