// What is said to people of templates, tokenizers and embeddings that do not go together.
#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "engine/memory/planes.h"
#include "engine/model/layout.h"
#include "engine/train/chat_warnings.h"
#include "engine/train/exported_template.h"
#include "engine/train/untrained_rows.h"
#include "gmock/gmock.h"
#include "tests/engine/data/data_test_util.h"
#include "tests/engine/train/train_testing.h"
#include "tests/engine/train/weights_testing.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::unique_ptr<ModelTokenizer> Golden(const std::string& name, const std::string& config) {
  const char* const testdata = std::getenv("PENSTOCK_TESTDATA");
  std::ifstream file(std::string(testdata == nullptr ? "tests/testdata" : testdata) +
                     "/tokenizers/" + name + ".json");
  const auto golden = nlohmann::json::parse(file);
  return Must(ModelTokenizer::Create({.directory = name,
                                      .tokenizer_json = golden["tokenizer"].dump(),
                                      .tokenizer_config = config}));
}

ChatSetup MakeSetup(const std::string& source, const std::string& bos = "") {
  return {.chat_template = Must(ChatTemplate::Parse(source, "the template")),
          .options = {.bos_token = bos}};
}

constexpr char kChatMl[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
constexpr char kBegun[] =
    "{% for m in messages %}{{ m.role }}:{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}";

TEST(ChatWarningsTest, WhatGoesTogetherHasNone) {
  const auto qwen = Golden("qwen", R"({"eos_token":"<|im_end|>"})");
  EXPECT_THAT(ChatWarnings(MakeSetup(kChatMl), *qwen, ""), IsEmpty());
  EXPECT_THAT(ChatWarnings(MakeSetup(kChatMl), *qwen, R"({"eos_token_id":381})"), IsEmpty());
  EXPECT_THAT(ChatWarnings(MakeSetup(kChatMl), *qwen, R"({"eos_token_id":[7,381]})"), IsEmpty());
}

TEST(ChatWarningsTest, TheEndOfATurnMustEndGeneration) {
  const auto qwen = Golden("qwen", R"({"eos_token":"<|im_end|>"})");
  EXPECT_THAT(ChatWarnings(MakeSetup(kChatMl), *qwen, R"({"eos_token_id":[7,8]})"),
              ElementsAre(AllOf(HasSubstr("ends with <|im_end|> (id 381)"), HasSubstr("7, 8"),
                                HasSubstr("generation_config.json"))));
  const auto other = Golden("qwen", R"({"eos_token":"<|im_start|>"})");
  EXPECT_THAT(
      ChatWarnings(MakeSetup(kChatMl), *other, ""),
      ElementsAre(HasSubstr("generation stops at 380 (eos_token of tokenizer_config.json")));
}

TEST(ChatWarningsTest, TheEndOfATurnMustBeAToken) {
  const auto llama = Golden("llama3", R"({"eos_token":"<|end|>"})");
  EXPECT_THAT(ChatWarnings(MakeSetup("<|begin|>" + std::string(kChatMl)), *llama, ""),
              ElementsAre(HasSubstr("no token of its own")));
}

TEST(ChatWarningsTest, ThereIsOneBos) {
  const auto llama = Golden("llama3", R"({"bos_token":"<|begin|>","eos_token":"<|end|>"})");
  const std::string bos = "{{ bos_token }}";
  EXPECT_THAT(ChatWarnings(MakeSetup(bos + kBegun, "<|begin|>"), *llama, ""), IsEmpty());
  EXPECT_THAT(ChatWarnings(MakeSetup(kBegun, "<|begin|>"), *llama, ""),
              ElementsAre(AllOf(HasSubstr("puts <|begin|> (id 380) before a text"),
                                HasSubstr("the template does not begin with it"))));
  EXPECT_THAT(ChatWarnings(MakeSetup("<|begin|>" + bos + kBegun, "<|begin|>"), *llama, ""),
              ElementsAre(HasSubstr("begins with <|begin|> (id 380) 2 times")));
}

TEST(ChatWarningsTest, ATemplateThatRefusesSaysSoElsewhere) {
  const auto qwen = Golden("qwen", R"({"eos_token":"<|im_end|>"})");
  EXPECT_THAT(ChatWarnings(MakeSetup("{{ raise_exception('no') }}"), *qwen, ""), IsEmpty());
}

TEST(ExportedTemplateTest, IsThatOfTheTrainingInBothPlaces) {
  std::vector<SideFile> files = {
      {.name = "tokenizer_config.json",
       .content = R"({"z":1,"chat_template":[{"name":"default","template":"old"}],"a":"é"})"}};
  const ChatTemplate used = Must(ChatTemplate::Parse("{{ 'new' }}\n", "the template"));
  SetChatTemplate(used, files);
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].content,
            "{\n  \"z\": 1,\n  \"chat_template\": \"{{ 'new' }}\\n\",\n  \"a\": \"é\"\n}\n");
  EXPECT_EQ(files[1].name, "chat_template.jinja");
  EXPECT_EQ(files[1].content, "{{ 'new' }}\n");
  SetChatTemplate(Must(ChatTemplate::Parse("newer", "the template")), files);
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[1].content, "newer");
}

class UntrainedRowsTest : public ::testing::Test {
 protected:
  // Rows of norm 1, but for those of `small`, which have `norm`.
  std::unique_ptr<HostStore> Store(const std::vector<int32_t>& small, float norm) const {
    auto store = testing::MakeStore(MakeLayout(spec_));
    const BlockLayout& block = store->layout().blocks.front();
    const int64_t first = block.OffsetOf(Role::kEmbedding), width = spec_.hidden_size;
    for (int64_t id = 0; id < spec_.vocab_size; ++id) {
      const bool is_small = std::find(small.begin(), small.end(), id) != small.end();
      store->block(block.block).hi[first + id * width] = Split(is_small ? norm : 1.0f).hi;
    }
    return store;
  }

  const ModelSpec spec_ = testing::SpecOf(testing::ByteModelConfig());
  TempDir dir_;
};

TEST_F(UntrainedRowsTest, AreThoseThatTheDataUse) {
  const auto data = Dataset::All(CacheOfRows(dir_, {{1, 2, 3}, {3, 4, 5}}));
  const UntrainedRows rows = FindUntrainedRows(spec_, *Store({2, 5, 6}, 0), *data);
  EXPECT_EQ(rows.count, 2);
  EXPECT_THAT(rows.first, ElementsAre(2, 5));
  EXPECT_EQ(rows.median_norm, 1);
  EXPECT_THAT(ToText(rows), AllOf(HasSubstr("2 token(s)"), HasSubstr("ids 2, 5:")));
  EXPECT_EQ(FindUntrainedRows(spec_, *Store({2}, 0.001f), *data).count, 1);
}

TEST_F(UntrainedRowsTest, SmallRowsAreNotNothing) {
  const auto data = Dataset::All(CacheOfRows(dir_, {{1, 2, 3}}));
  const UntrainedRows rows = FindUntrainedRows(spec_, *Store({2}, 0.1f), *data);
  EXPECT_EQ(rows.count, 0);
  EXPECT_EQ(ToText(rows), "");
}

}  // namespace
}  // namespace penstock
