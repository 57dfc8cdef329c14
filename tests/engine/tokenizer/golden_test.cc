// Ids, spans and decoded text against Hugging Face's library, for small tokenizers that use every
// component. tests/reference/tokenizer_conformance.py does the same on a larger scale.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/engine/tokenizer/testing.h"

namespace penstock {
namespace testing {
namespace {

std::filesystem::path TestdataFolder() {
  const char* const testdata = std::getenv("PENSTOCK_TESTDATA");
  return testdata == nullptr ? "tests/testdata" : testdata;
}

}  // namespace

std::string ReadTestFile(const std::string& name) {
  std::ifstream file(TestdataFolder() / name, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << name;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

nlohmann::json ReadGolden(const std::string& name) {
  return nlohmann::json::parse(ReadTestFile("tokenizers/" + name + ".json"));
}

std::vector<std::string> GoldenNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(TestdataFolder() / "tokenizers")) {
    names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

nlohmann::json SmallTokenizer() { return ReadGolden("llama3")["tokenizer"]; }

}  // namespace testing

namespace {

EncodeOptions OptionsOf(int mode) {
  return {.special_text = mode == 2 ? SpecialText::kPlainText : SpecialText::kToken,
          .post_process = mode == 1 ? PostProcess::kAddTokens : PostProcess::kSkip};
}

TEST(TokenizerGoldenTest, IdsSpansAndTextAreThoseOfTheReferenceLibrary) {
  int64_t tokens = 0;
  for (const std::string& name : testing::GoldenNames()) {
    const nlohmann::json golden = testing::ReadGolden(name);
    const auto tokenizer = testing::Load(golden["tokenizer"]);
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status();
    for (const nlohmann::json& expected : golden["cases"]) {
      const auto text = expected[1].get<std::string>();
      const EncodeOptions options = OptionsOf(expected[0].get<int>());
      Encoding encoding;
      ASSERT_TRUE((*tokenizer)->EncodeWithSpans(text, options, encoding).ok()) << name << text;
      EXPECT_EQ(encoding.ids, expected[2].get<std::vector<int32_t>>()) << name << ": " << text;
      std::vector<int64_t> spans;
      for (const TextSpan& span : encoding.spans) {
        spans.push_back(span.begin);
        spans.push_back(span.end);
      }
      EXPECT_EQ(spans, expected[3].get<std::vector<int64_t>>()) << name << ": " << text;
      EXPECT_EQ((*tokenizer)->Decode(encoding.ids, ModelTokenizer::SpecialIds::kKeep),
                expected[4].get<std::string>())
          << name << ": " << text;
      std::vector<int32_t> ids = {-7};
      ASSERT_TRUE((*tokenizer)->EncodeIds(text, options, ids).ok());
      EXPECT_EQ(std::vector<int32_t>(ids.begin() + 1, ids.end()), encoding.ids) << name;
      tokens += static_cast<int64_t>(ids.size());
    }
  }
  EXPECT_GT(tokens, 5000);
}

}  // namespace
}  // namespace penstock
