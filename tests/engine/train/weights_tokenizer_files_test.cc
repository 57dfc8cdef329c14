#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/train/tokenizer_files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace penstock {
namespace {

using ::testing::HasSubstr;

std::string TestFile(const std::string& name) {
  const std::string folder = std::getenv("PENSTOCK_TESTDATA");
  std::ifstream file(folder + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string GoldenTokenizer() {
  return nlohmann::json::parse(TestFile("tokenizers/qwen.json"))["tokenizer"].dump();
}

class TokenizerFilesTest : public ::testing::Test {
 protected:
  TokenizerFilesTest() {
    std::string name = (std::filesystem::temp_directory_path() / "tokenizer_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  ~TokenizerFilesTest() override { std::filesystem::remove_all(directory_); }

  void Write(const std::string& name, const std::string& content) {
    std::ofstream(directory_ + "/" + name) << content;
  }

  std::string directory_;
};

TEST_F(TokenizerFilesTest, ReadsADirectoryOrWhatWasReadOfIt) {
  const std::string config = R"({"eos_token": "<|im_end|>"})";
  Write("tokenizer.json", GoldenTokenizer());
  Write("tokenizer_config.json", config);
  Write("README.md", "x");
  const auto opened = OpenTokenizer(directory_);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const std::vector<SideFile> side_files = {
      {"tokenizer_config.json", config}, {"merges.txt", ""}, {"tokenizer.json", GoldenTokenizer()}};
  const auto read = TokenizerOf(side_files, "elsewhere");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*opened)->fingerprint(), (*read)->fingerprint());
  EXPECT_EQ((*opened)->end_of_document(), (*opened)->TokenToId("<|im_end|>"));
}

TEST_F(TokenizerFilesTest, ReadsASentencePieceModelWithItsAddedTokens) {
  Write("tokenizer.model", TestFile("sentencepiece/llama.model"));
  Write("added_tokens.json", R"({"<|im_end|>": 500})");
  const auto opened = OpenTokenizer(directory_);
  ASSERT_TRUE(opened.ok()) << opened.status();
  std::vector<int32_t> ids;
  ASSERT_TRUE((*opened)->Encode("the<|im_end|>", ids).ok());
  EXPECT_EQ(ids, (std::vector<int32_t>{*(*opened)->TokenToId("▁the"), 500}));
}

TEST_F(TokenizerFilesTest, SaysWhatIsMissing) {
  const auto missing = OpenTokenizer(directory_);
  EXPECT_EQ(ReasonOf(missing.status()), reason::kModelInvalid);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr(directory_));
  EXPECT_EQ(ReasonOf(TokenizerOf({}, "there").status()), reason::kModelInvalid);
  EXPECT_EQ(ReasonOf(OpenTokenizer(directory_ + "/none").status()), reason::kModelInvalid);
}

TEST_F(TokenizerFilesTest, ALinkOutOfTheDirectoryIsNotFollowed) {
  std::filesystem::create_symlink("/etc/hostname", directory_ + "/tokenizer.json");
  EXPECT_EQ(ReasonOf(OpenTokenizer(directory_).status()), reason::kPathNotAllowed);
}

}  // namespace
}  // namespace penstock
