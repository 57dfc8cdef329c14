#include "engine/template/model_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string SourceOf(const ModelTemplateFiles& files, std::string_view name = "") {
  const auto found = FindModelTemplate(files, name);
  return found.ok() ? found->source() : std::string(found.status().message());
}

TEST(ModelTemplateTest, FindsTheOneTemplate) {
  EXPECT_EQ(SourceOf({.tokenizer_config_json = R"({"chat_template": "a{{ 1 }}"})"}), "a{{ 1 }}");
  EXPECT_EQ(SourceOf({.chat_template_jinja = "b"}), "b");
}

TEST(ModelTemplateTest, TheFileOfItsOwnWins) {
  const ModelTemplateFiles files = {.chat_template_jinja = "b",
                                    .tokenizer_config_json = R"({"chat_template": "a"})"};
  EXPECT_EQ(SourceOf(files), "b");
  EXPECT_EQ(SourceOf(files, "default"), "b");
}

TEST(ModelTemplateTest, FindsNamedTemplates) {
  const ModelTemplateFiles files = {.tokenizer_config_json =
                                        R"({"chat_template": [{"name": "default", "template": "a"},
                                                     {"name": "tool_use", "template": "t"}]})"};
  EXPECT_EQ(SourceOf(files), "a");
  EXPECT_EQ(SourceOf(files, "tool_use"), "t");
  EXPECT_THAT(SourceOf(files, "rag"),
              AllOf(HasSubstr("called rag"), HasSubstr("default, tool_use"), HasSubstr("chatml")));
}

TEST(ModelTemplateTest, SaysWhatIsMissingOrBroken) {
  EXPECT_EQ(FindModelTemplate({}, "").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(SourceOf({.tokenizer_config_json = R"({"chat_template": null})"}),
              HasSubstr("no chat template called default. Name a built-in one: "));
  EXPECT_THAT(SourceOf({.tokenizer_config_json = R"({"chat_template": 5})"}),
              StartsWith("tokenizer_config.json: chat_template is neither"));
  EXPECT_THAT(SourceOf({.tokenizer_config_json = R"({"chat_template": [{"name": "x"}]})"}),
              HasSubstr("lacks the strings name and template"));
  EXPECT_THAT(SourceOf({.tokenizer_config_json =
                            R"({"chat_template": [{"name": "x", "template": ""},
                                                  {"name": "x", "template": ""}]})"}),
              HasSubstr("two chat templates are called x"));
  EXPECT_THAT(SourceOf({.tokenizer_config_json = "[1]"}), HasSubstr("no JSON object"));
  EXPECT_THAT(SourceOf({.tokenizer_config_json = "{"}), HasSubstr("not valid JSON"));
  EXPECT_THAT(SourceOf({.tokenizer_config_json = R"({"chat_template": "\n{% if %}"})"}),
              StartsWith("chat_template of tokenizer_config.json, line 2: "));
  EXPECT_THAT(SourceOf({.chat_template_jinja = "{{"}), StartsWith("chat_template.jinja, line 1: "));
}

}  // namespace
}  // namespace penstock
