// What of a conversation is trained.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "engine/base/status.h"
#include "engine/template/builtin_templates.h"
#include "engine/template/chat_mask.h"
#include "engine/template/json_value.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Marks nothing; turns are independent of what follows.
constexpr char kPlain[] =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}[end]{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";
// Drops the thinking of all turns but the last.
constexpr char kForgetful[] =
    "{% for m in messages %}[{{ m.role }}]{{ m.content if loop.last else m.content.split('/')[-1] "
    "}}"
    "[end]{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

Conversation ParseConversation(const std::string& json) {
  Conversation conversation;
  const auto messages =
      jinja::ParseJsonValue(json, "messages", {.max_bytes = 1 << 20}, reason::kDataInvalid);
  EXPECT_TRUE(messages.ok()) << messages.status();
  if (messages.ok()) conversation.messages = *messages;
  return conversation;
}

ChatOptions Options() {
  ChatOptions options;
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  return options;
}

absl::StatusOr<TrainingText> Train(const std::string& source, const std::string& messages) {
  const auto chat_template = ChatTemplate::Parse(source, "t");
  if (!chat_template.ok()) return chat_template.status();
  return RenderForTraining(*chat_template, ParseConversation(messages), Options());
}

// The text with trained parts between ⟦ and ⟧.
std::string Marked(const TrainingText& text) {
  std::string out;
  int64_t at = 0;
  for (const TrainedSpan& span : text.spans) {
    out += text.text.substr(static_cast<size_t>(at), static_cast<size_t>(span.begin - at)) + "⟦" +
           text.text.substr(static_cast<size_t>(span.begin),
                            static_cast<size_t>(span.end - span.begin)) +
           "⟧";
    at = span.end;
  }
  return out + text.text.substr(static_cast<size_t>(at));
}

constexpr char kTwoTurns[] =
    R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"a/Ho"},)"
    R"({"role":"user","content":"So?"},{"role":"assistant","content":"b/Yes"}])";

TEST(ChatMaskTest, PrefixesGiveWhatEachAnswerAdds) {
  const auto text = Train(kPlain, kTwoTurns);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->source, TrainingText::Source::kPrefixes);
  EXPECT_EQ(Marked(*text),
            "[user]Hi[end][assistant]⟦a/Ho[end]⟧[user]So?[end][assistant]⟦b/Yes[end]⟧");
  EXPECT_EQ(text->spans[0].message, 1);
  EXPECT_EQ(text->spans[1].message, 3);
}

TEST(ChatMaskTest, ATemplateThatRewritesEarlierTurnsIsRefused) {
  const auto text = Train(kForgetful, kTwoTurns);
  EXPECT_THAT(std::string(text.status().message()),
              AllOf(HasSubstr("message 1"), HasSubstr("up to it"), HasSubstr("At byte 24"),
                    HasSubstr("[assistant]a/Ho[end]', the other 'r]Hi[end][assistant]Ho[end]"),
                    HasSubstr("generation")));
  // One turn is no trouble.
  EXPECT_TRUE(Train(kForgetful, R"([{"role":"user","content":"Hi"},)"
                                R"({"role":"assistant","content":"a/Ho"}])")
                  .ok());
}

TEST(ChatMaskTest, ThePromptMustLeadToTheAnswer) {
  const auto text = Train(
      "{% for m in messages %}{{ m.content }};{% endfor %}{% if add_generation_prompt %}>{% endif "
      "%}",
      kTwoTurns);
  EXPECT_THAT(std::string(text.status().message()),
              AllOf(HasSubstr("message 1"), HasSubstr("before it"), HasSubstr("At byte 3")));
}

TEST(ChatMaskTest, NothingToTrainIsAnError) {
  EXPECT_THAT(std::string(Train(kPlain, R"([{"role":"user","content":"Hi"}])").status().message()),
              HasSubstr("no message of role assistant"));
  EXPECT_THAT(std::string(Train(kPlain, "[]").status().message()), HasSubstr("nothing to train"));
  EXPECT_THAT(
      std::string(
          Train("{% generation %}{% endgeneration %}<|im_start|>", kTwoTurns).status().message()),
      AllOf(HasSubstr("no text"), HasSubstr("the built-in template chatml")));
}

TEST(ChatMaskTest, AGenerationBlockInAMacroIsRefused) {
  const std::string source =
      "\n{% macro m(x) %}{% generation %}{{ x }}{% endgeneration %}{% endmacro %}{{ m(1) }}";
  EXPECT_THAT(std::string(Train(source, kTwoTurns).status().message()), HasSubstr("line 2"));
}

TEST(ChatMaskTest, GenerationSpansKnowTheirMessages) {
  const auto text = Train(
      "{% set turns = messages[1:] %}{% for m in turns if m.role == 'assistant' %}"
      "{% for part in [1, 2] %}{% generation %}{{ m.content }}{% endgeneration %};{% endfor %}"
      "{% endfor %}{% generation %}é{% endgeneration %}",
      kTwoTurns);
  ASSERT_TRUE(text.ok()) << text.status();
  std::vector<int64_t> messages;
  for (const TrainedSpan& span : text->spans) messages.push_back(span.message);
  EXPECT_THAT(messages, ElementsAre(1, 1, 3, 3, -1));
  EXPECT_EQ(text->spans.back().end - text->spans.back().begin, 2);
}

TEST(ChatMaskTest, SelectsMessagesByTheirFlags) {
  const std::vector<TrainedSpan> spans = {{0, 2, 1}, {4, 6, 3}, {8, 9, 3}};
  const auto last = SelectSpans(spans, {true, false, true, true});
  ASSERT_TRUE(last.ok());
  EXPECT_THAT(*last, ElementsAre(spans[1], spans[2]));
  EXPECT_THAT(*SelectSpans(spans, {false, false, false, false}), IsEmpty());
  const std::vector<TrainedSpan> unknown = {{0, 2, -1}};
  EXPECT_TRUE(SelectSpans(unknown, {true, true}).ok());
  EXPECT_THAT(std::string(SelectSpans(unknown, {true, false}).status().message()),
              HasSubstr("which message"));
}

TEST(ChatMaskTest, TokensBelongToTheSpanTheyBeginIn) {
  const std::vector<TrainedSpan> spans = {{4, 8, 0}, {8, 10, 0}, {12, 16, 1}};
  const std::vector<TextSpan> tokens = {{0, 3},   {3, 5},   {5, 9},   {9, 10},  {10, 10}, {10, 13},
                                        {13, 14}, {14, 14}, {15, 20}, {16, 17}, {20, 21}};
  const TokenMask mask = MaskTokens(spans, tokens);
  EXPECT_THAT(mask.trained, ElementsAre(0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0));
  EXPECT_EQ(mask.straddling, 2);
  EXPECT_THAT(MaskTokens({}, tokens).trained, ::testing::Each(0));
  EXPECT_THAT(MaskTokens(spans, {}).trained, IsEmpty());
}

// Two answers of zero bytes at one place, and a token over a whole span.
TEST(ChatMaskTest, ATokenOverAWholeSpanStraddlesIt) {
  const std::vector<TrainedSpan> spans = {{4, 6, 0}};
  const std::vector<TextSpan> tokens = {{0, 2}, {2, 8}, {8, 9}};
  const TokenMask mask = MaskTokens(spans, tokens);
  EXPECT_THAT(mask.trained, ElementsAre(0, 0, 0));
  EXPECT_EQ(mask.straddling, 1);
}

// ---- Built-in templates
// --------------------------------------------------------------------------

struct Named {
  const char* name;
  const char* messages;
};
constexpr Named kConversations[] = {
    {"two turns", R"([{"role":"system","content":"Be terse."},{"role":"user","content":"2 + 2?"},)"
                  R"({"role":"assistant","content":"4."},{"role":"user","content":"Sûr?"},)"
                  R"({"role":"assistant","content":"Oui 👍"}])"},
    {"parts, no system",
     R"([{"role":"user","content":[{"type":"text","text":"A"},{"type":"text","text":"B"}]},)"
     R"({"role":"assistant","content":" spaced \n"}])"},
};
constexpr Named kQwenConversations[] = {
    {"tools", R"([{"role":"user","content":"Add"},{"role":"assistant","content":"","tool_calls":)"
              R"([{"type":"function","function":{"name":"add","arguments":{"a":1.0,"b":null}}},)"
              R"({"type":"function","function":{"name":"add","arguments":{}}}]},)"
              R"({"role":"tool","content":"1"},{"role":"tool","content":"0"},)"
              R"({"role":"assistant","content":"1 and 0."}])"},
    {"thinking", R"([{"role":"user","content":"Q"},{"role":"assistant",)"
                 R"("content":"<think>\nold\n</think>\n\nA"},{"role":"user","content":"R"},)"
                 R"({"role":"assistant","content":"B","reasoning_content":"new\n"}])"},
};

std::string Rendered(const std::string& name, const Named& conversation) {
  const auto chat_template = BuiltInTemplate(name);
  EXPECT_TRUE(chat_template.ok()) << chat_template.status();
  if (!chat_template.ok()) return "";
  const auto text =
      RenderForTraining(*chat_template, ParseConversation(conversation.messages), Options());
  EXPECT_TRUE(text.ok()) << name << ": " << text.status();
  if (!text.ok()) return "";
  EXPECT_EQ(text->source, TrainingText::Source::kGenerationTag);
  return "=== " + name + ": " + conversation.name + "\n" + Marked(*text) + "\n";
}

TEST(BuiltInTemplatesTest, TrainWhatTheGoldenFileShows) {
  std::string rendered;
  for (const std::string& name : BuiltInTemplateNames()) {
    for (const Named& conversation : kConversations) rendered += Rendered(name, conversation);
  }
  for (const std::string name : {"qwen", "qwen3"}) {
    for (const Named& conversation : kQwenConversations) rendered += Rendered(name, conversation);
  }
  // PENSTOCK_UPDATE_GOLDEN=1 ctest -R template_test writes it; then look at it.
  const std::string path = std::string(std::getenv("PENSTOCK_TESTDATA")) + "/template/masks.txt";
  if (std::getenv("PENSTOCK_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << rendered;
  std::stringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(rendered, golden.str());
}

// The prompt for generation must be the beginning of what is trained, or the model would learn
// to answer another prompt than it gets.
TEST(BuiltInTemplatesTest, ThePromptEndsWhereTheAnswerBegins) {
  for (const std::string& name : BuiltInTemplateNames()) {
    const auto chat_template = BuiltInTemplate(name);
    ASSERT_TRUE(chat_template.ok());
    Conversation conversation = ParseConversation(kConversations[0].messages);
    const auto text = RenderForTraining(*chat_template, conversation, Options());
    ASSERT_TRUE(text.ok()) << text.status();
    ASSERT_EQ(text->spans.size(), 2u) << name;
    EXPECT_EQ(text->spans[0].message, 2);
    EXPECT_EQ(text->spans[1].message, 4);
    std::vector<jinja::Value> messages = conversation.messages.list();
    messages.pop_back();
    conversation.messages = jinja::Value::List(std::move(messages));
    const auto prompt = RenderChat(*chat_template, conversation, Options(), GenerationPrompt::kYes);
    ASSERT_TRUE(prompt.ok()) << prompt.status();
    EXPECT_EQ(prompt->text, text->text.substr(0, static_cast<size_t>(text->spans[1].begin)))
        << name;
  }
}

TEST(BuiltInTemplatesTest, RefuseWhatTheyCannotWrite) {
  const auto error = [](const std::string& name, const std::string& messages) {
    return std::string(
        RenderForTraining(*BuiltInTemplate(name), ParseConversation(messages), Options())
            .status()
            .message());
  };
  EXPECT_THAT(error("llama3", R"([{"role":"tool","content":"x"}])"), HasSubstr("tool calls"));
  EXPECT_THAT(error("chatml", R"([{"role":"critic","content":"x"}])"), HasSubstr("role critic"));
  EXPECT_THAT(error("gemma", R"([{"role":"assistant","content":"x"}])"), HasSubstr("alternate"));
  EXPECT_THAT(error("phi4", R"([{"role":"user","content":[{"type":"image"}]}])"),
              HasSubstr("image"));
  ChatOptions no_tokens;
  for (const std::string name : {"mistral", "alpaca", "vicuna", "zephyr", "gemma"}) {
    EXPECT_THAT(
        std::string(RenderForTraining(*BuiltInTemplate(name),
                                      ParseConversation(kConversations[0].messages), no_tokens)
                        .status()
                        .message()),
        HasSubstr("the tokenizer has no"))
        << name;
  }
  EXPECT_THAT(std::string(BuiltInTemplate("nosuch").status().message()),
              AllOf(HasSubstr("nosuch"), HasSubstr("llama3")));
}

TEST(BuiltInTemplatesTest, AreSuggestedByTheirLooks) {
  for (const std::string& name : BuiltInTemplateNames()) {
    EXPECT_EQ(std::string(SuggestBuiltInTemplate(BuiltInTemplate(name)->source())), name);
  }
  EXPECT_EQ(SuggestBuiltInTemplate("[[[user]]]"), "");
}

}  // namespace
}  // namespace penstock
