#include "engine/data/row_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"

namespace penstock {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ordered_json Json(const std::string& text) { return ordered_json::parse(text); }

Example Convert(const std::string& row, const FormatSpec& spec) {
  Example example;
  const auto error = ToExample(Json(row), spec, example);
  EXPECT_FALSE(error) << error->message;
  return example;
}

Example Convert(const std::string& row, RowFormat format) {
  return Convert(row, DefaultFormat(format));
}

std::string Refusal(const std::string& row, const FormatSpec& spec) {
  Example example;
  const auto error = ToExample(Json(row), spec, example);
  EXPECT_TRUE(error) << row;
  return error ? error->message : "";
}

std::string Refusal(const std::string& row, RowFormat format) {
  return Refusal(row, DefaultFormat(format));
}

// The messages as one JSON text, with the train flags behind them.
std::string Messages(const Example& example) {
  std::string text, flags;
  for (const ChatMessage& message : std::get<Chat>(example).messages) {
    text += message.fields.dump() + "\n";
    flags += !message.train ? "." : *message.train ? "+" : "-";
  }
  return text + flags;
}

TEST(AlpacaTest, InstructionAndInputAreOneTurn) {
  EXPECT_EQ(
      Messages(Convert(R"({"instruction":"Add","input":"1 2","output":"3"})", RowFormat::kAlpaca)),
      "{\"role\":\"user\",\"content\":\"Add\\n1 2\"}\n"
      "{\"role\":\"assistant\",\"content\":\"3\"}\n..");
  EXPECT_EQ(
      Messages(Convert(R"({"instruction":"Hi","input":null,"output":""})", RowFormat::kAlpaca)),
      "{\"role\":\"user\",\"content\":\"Hi\"}\n{\"role\":\"assistant\",\"content\":\"\"}\n..");
  EXPECT_EQ(
      Messages(Convert(R"({"instruction":"","input":"x","output":"y"})", RowFormat::kAlpaca)),
      "{\"role\":\"user\",\"content\":\"x\"}\n{\"role\":\"assistant\",\"content\":\"y\"}\n..");
}

TEST(AlpacaTest, HistoryAndSystemComeFirst) {
  EXPECT_EQ(Messages(Convert(
                R"({"instruction":"c","output":"d","history":[["a","b"]],"system":"be kind"})",
                RowFormat::kAlpaca)),
            "{\"role\":\"system\",\"content\":\"be kind\"}\n{\"role\":\"user\",\"content\":\"a\"}\n"
            "{\"role\":\"assistant\",\"content\":\"b\"}\n{\"role\":\"user\",\"content\":\"c\"}\n"
            "{\"role\":\"assistant\",\"content\":\"d\"}\n.....");
}

TEST(AlpacaTest, BadRowsSayWhichColumn) {
  EXPECT_THAT(Refusal(R"({"instruction":"a"})", RowFormat::kAlpaca),
              HasSubstr("column \"output\" is missing or null"));
  EXPECT_THAT(Refusal(R"({"instruction":"a","output":null})", RowFormat::kAlpaca),
              HasSubstr("column \"output\" is missing or null"));
  EXPECT_THAT(Refusal(R"({"instruction":"a","output":7})", RowFormat::kAlpaca),
              HasSubstr("column \"output\" is a number, expected a string"));
  EXPECT_THAT(Refusal(R"({"instruction":"","output":"x"})", RowFormat::kAlpaca),
              HasSubstr("is empty, and so is its input"));
  EXPECT_THAT(Refusal(R"({"instruction":"a","output":"b","history":[["x"]]})", RowFormat::kAlpaca),
              HasSubstr("history[0] is not [question, answer]"));
  EXPECT_THAT(Refusal(R"({"instruction":"a","output":"b","history":"x"})", RowFormat::kAlpaca),
              HasSubstr("column \"history\" is a string"));
}

TEST(ShareGptTest, TurnsGetTheRolesOfTemplates) {
  const Example example = Convert(
      R"({"conversations":[
        {"from":"system","value":"s"},
        {"from":"human","value":"u"},
        {"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{\"z\":1,\"a\":[2]}}"},
        {"from":"observation","value":"o"},
        {"from":"gpt","value":"a"}],
        "tools":"[{\"name\":\"f\",\"parameters\":{}}]"})",
      RowFormat::kShareGpt);
  EXPECT_EQ(Messages(example),
            "{\"role\":\"system\",\"content\":\"s\"}\n{\"role\":\"user\",\"content\":\"u\"}\n"
            "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"type\":\"function\","
            "\"function\":{\"name\":\"f\",\"arguments\":{\"z\":1,\"a\":[2]}}}]}\n"
            "{\"role\":\"tool\",\"content\":\"o\"}\n{\"role\":\"assistant\",\"content\":\"a\"}\n"
            ".....");
  EXPECT_EQ(std::get<Chat>(example).tools.dump(),
            R"([{"type":"function","function":{"name":"f","parameters":{}}}])");
}

TEST(ShareGptTest, TheConversationsOwnSystemMessageWins) {
  EXPECT_THAT(Messages(Convert(R"({"conversations":[{"from":"human","value":"u"},
                                  {"from":"gpt","value":"a"}],"system":"column"})",
                               RowFormat::kShareGpt)),
              HasSubstr("{\"role\":\"system\",\"content\":\"column\"}\n"));
  EXPECT_THAT(Messages(Convert(R"({"conversations":[{"from":"system","value":"own"},
      {"from":"human","value":"u"},{"from":"gpt","value":"a"}],"system":"column"})",
                               RowFormat::kShareGpt)),
              testing::Not(HasSubstr("column")));
}

TEST(ShareGptTest, LlamaFactorysOrderHolds) {
  const auto refusal = [](const std::vector<std::string>& roles) {
    ordered_json list = ordered_json::array();
    for (const std::string& role : roles) list.push_back({{"from", role}, {"value", "{}"}});
    return Refusal(ordered_json{{"conversations", list}}.dump(), RowFormat::kShareGpt);
  };
  EXPECT_THAT(refusal({}), HasSubstr("conversations is empty"));
  EXPECT_THAT(refusal({"human"}), HasSubstr("1 turns, expected an even number"));
  EXPECT_THAT(refusal({"human", "gpt", "human"}), HasSubstr("3 turns"));
  EXPECT_THAT(refusal({"gpt", "human"}), HasSubstr("conversations[0]: a turn of role assistant"));
  EXPECT_THAT(refusal({"human", "human"}), HasSubstr("conversations[1]: a turn of role user"));
  EXPECT_THAT(refusal({"human", "gpt", "system", "gpt"}),
              HasSubstr("conversations[2]: a turn of role system"));
  EXPECT_THAT(refusal({"human", "gpt", "observation", "observation"}),
              HasSubstr("conversations[3]: a turn of role tool"));
  EXPECT_THAT(refusal({"human", "bot"}),
              HasSubstr("conversations[1].from: unknown role \"bot\", expected one of system, "
                        "human, gpt, observation, function_call"));
  EXPECT_THAT(refusal({"human", "function_call"}),
              HasSubstr("conversations[1].value: a function call without \"name\""));
}

TEST(MessagesTest, EverythingThatATemplateMayWantIsKept) {
  const std::string row = R"({"messages":[
      {"role":"developer","content":"d"},
      {"content":"u","role":"user","name":"Ada"},
      {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",
       "function":{"name":"f","arguments":"{}"}}],"reasoning_content":"hm"},
      {"role":"tool","tool_call_id":"1","content":[{"type":"text","text":"4"},
       {"type":"text","text":"2"}]},
      {"role":"assistant","content":"a","train":true},
      {"role":"assistant","content":"b","weight":0}],
      "tools":[{"type":"function","function":{"name":"f"}}]})";
  const Example example = Convert(row, RowFormat::kMessages);
  EXPECT_EQ(Messages(example),
            "{\"role\":\"developer\",\"content\":\"d\"}\n"
            "{\"role\":\"user\",\"content\":\"u\",\"name\":\"Ada\"}\n"
            "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":"
            "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}],"
            "\"reasoning_content\":\"hm\"}\n"
            "{\"role\":\"tool\",\"content\":\"42\",\"tool_call_id\":\"1\"}\n"
            "{\"role\":\"assistant\",\"content\":\"a\"}\n"
            "{\"role\":\"assistant\",\"content\":\"b\"}\n....+-");
  EXPECT_EQ(std::get<Chat>(example).tools.dump(),
            R"([{"type":"function","function":{"name":"f"}}])");
}

TEST(MessagesTest, BadRowsSayWhichMessageAndWhy) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"([])", "messages is empty"},
      {R"("text")", "is a string, expected an array of messages; CSV cannot"},
      {R"([3])", "messages[0]: found a number, expected an object"},
      {R"([{"content":"x"}])", "messages[0].role: found nothing"},
      {R"([{"role":"human","content":"x"}])", "unknown role \"human\", expected one of system"},
      {R"([{"role":"user"}])", "messages[0].content: missing or null"},
      {R"([{"role":"user","content":{}}])", "messages[0].content: found an object"},
      {R"([{"role":"user","content":[{"type":"image_url"}]}])", "only text is trained on"},
      {R"([{"role":"user","content":"x"}])", "no message of the assistant"},
      {R"([{"role":"user","content":"x"},{"role":"system","content":"y"}])",
       "messages[1]: a system message after other turns"},
      {R"([{"role":"user","content":"x"},{"role":"tool","content":"y"}])",
       "messages[1]: a tool's answer after user"},
      {R"([{"role":"user","content":"x","train":true}])", "only what the assistant says"},
      {R"([{"role":"assistant","content":"x","weight":0.5}])",
       "messages[0].weight: found a number"},
      {R"([{"role":"assistant","content":"x","weight":0,"train":true}])", "remove one of them"},
      {R"([{"role":"user","content":"x","tool_calls":[]}])", "only the assistant calls tools"},
      {R"([{"role":"assistant","content":"x","tool_calls":{}}])", "tool_calls: found an object"},
  };
  for (const auto& [messages, message] : cases) {
    EXPECT_THAT(Refusal("{\"messages\":" + messages + "}", RowFormat::kMessages),
                HasSubstr(message))
        << messages;
  }
  EXPECT_THAT(Refusal(R"({"messages":[{"role":"assistant","content":"a"}],"tools":"{"})",
                      RowFormat::kMessages),
              HasSubstr("column \"tools\" is not JSON"));
  EXPECT_THAT(Refusal(R"({"messages":[{"role":"assistant","content":"a"}],"tools":[1]})",
                      RowFormat::kMessages),
              HasSubstr("tools[0] is a number"));
}

TEST(MessagesTest, OtherTagsAreMappedAndMustNotMeetTheStandardOnes) {
  FormatSpec spec = DefaultFormat(RowFormat::kMessages);
  spec.columns.messages.name = "chat";
  spec.tags.role = "speaker";
  spec.tags.content = "words";
  spec.tags.user = "me";
  EXPECT_EQ(Messages(Convert(R"({"chat":[{"speaker":"me","words":"u"},
                                {"speaker":"assistant","words":"a"}]})",
                             spec)),
            "{\"role\":\"user\",\"content\":\"u\"}\n"
            "{\"role\":\"assistant\",\"content\":\"a\"}\n..");
  EXPECT_THAT(Refusal(R"({"chat":[{"speaker":"me","words":"u","role":"x"}]})", spec),
              HasSubstr("chat[0].role: this key has no place"));
}

TEST(PromptCompletionTest, StringsStayStrings) {
  const auto pair = std::get<PromptCompletion>(
      Convert(R"({"prompt":"2+2=","completion":" 4"})", RowFormat::kPromptCompletion));
  EXPECT_EQ(pair.prompt, "2+2=");
  EXPECT_EQ(pair.completion, " 4");
}

TEST(PromptCompletionTest, PromptMessagesAreNotTrained) {
  EXPECT_THAT(Messages(Convert(R"({"prompt":[{"role":"user","content":"q"},
      {"role":"assistant","content":"old"},{"role":"user","content":"q2"}],
      "completion":[{"role":"assistant","content":"new"}]})",
                               RowFormat::kPromptCompletion)),
              testing::EndsWith("\n---."));
}

TEST(PromptCompletionTest, BadRows) {
  EXPECT_THAT(Refusal(R"({"prompt":"a"})", RowFormat::kPromptCompletion),
              HasSubstr("column \"completion\" is missing"));
  EXPECT_THAT(Refusal(R"({"prompt":"a","completion":[]})", RowFormat::kPromptCompletion),
              HasSubstr("are a string and an array, expected two strings or two arrays"));
  EXPECT_THAT(Refusal(R"({"prompt":"a","completion":""})", RowFormat::kPromptCompletion),
              HasSubstr("nothing to learn"));
  EXPECT_THAT(Refusal(R"({"prompt":[{"role":"user","content":"q"}],"completion":[]})",
                      RowFormat::kPromptCompletion),
              HasSubstr("has no message"));
}

TEST(TextTest, OneColumnIsTheText) {
  EXPECT_EQ(std::get<PlainText>(Convert(R"({"text":"hello","id":1})", RowFormat::kText)).text,
            "hello");
  EXPECT_THAT(Refusal(R"({"text":""})", RowFormat::kText), HasSubstr("is empty"));
  EXPECT_THAT(Refusal(R"({"body":"x"})", RowFormat::kText), HasSubstr("\"text\" is missing"));
}

TEST(DetectFormatTest, FormatsWithoutDoubt) {
  const std::vector<std::pair<std::string, RowFormat>> cases = {
      {R"({"messages":[{"role":"user","content":"x"}],"id":1})", RowFormat::kMessages},
      {R"({"conversations":[{"from":"human","value":"x"}]})", RowFormat::kShareGpt},
      {R"({"conversations":[{"role":"user","content":"x"}]})", RowFormat::kMessages},
      {R"({"instruction":"a","output":"b"})", RowFormat::kAlpaca},
      {R"({"prompt":"a","completion":"b"})", RowFormat::kPromptCompletion},
      {R"({"text":"a","meta":{}})", RowFormat::kText},
  };
  for (const auto& [row, format] : cases) {
    const absl::StatusOr<FormatSpec> spec = DetectFormat(Json(row));
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->format, format) << row;
    Example example;  // the detected names are those of the row
    if (const auto error = ToExample(Json(row), *spec, example)) {
      EXPECT_THAT(error->message, testing::Not(HasSubstr("is missing"))) << row;
    }
  }
  const FormatSpec renamed =
      *DetectFormat(Json(R"({"conversations":[{"role":"user","content":"x"}],"extra":1})"));
  EXPECT_EQ(renamed.columns.messages.name, "conversations");
  EXPECT_THAT(UnusedColumns(Json(R"({"conversations":[],"extra":1,"tools":2})"), renamed),
              ElementsAre("extra"));
}

TEST(DetectFormatTest, DoubtIsRefused) {
  const auto message = [](const std::string& row) {
    const absl::Status status = DetectFormat(Json(row)).status();
    EXPECT_EQ(ReasonOf(status), reason::kDataInvalid) << row;
    return std::string(status.message());
  };
  EXPECT_THAT(message(R"({"text":"a","prompt":"b","completion":"c"})"),
              HasSubstr("could be of the formats prompt_completion and text_rows"));
  EXPECT_THAT(message(R"({"question":"a","answer":"b"})"),
              HasSubstr("no known format has the columns \"question\", \"answer\""));
  EXPECT_THAT(message("{}"), HasSubstr("the columns none"));
  EXPECT_THAT(message(R"({"prompt":"a","chosen":"b","rejected":"c"})"),
              HasSubstr("preference data"));
  EXPECT_THAT(message(R"({"input_ids":[1]})"), HasSubstr("token_ids_jsonl"));
}

TEST(FormatSpecTest, EveryPartOfTheSpecIsInItsFingerprint) {
  const FormatSpec base = DefaultFormat(RowFormat::kShareGpt);
  std::vector<FormatSpec> others(6, base);
  others[0].format = RowFormat::kMessages;
  others[1].turns = Turns::kFree;
  others[2].columns.messages.name = "x";
  others[3].columns.system.need = Column::Need::kUnused;
  others[4].tags.function = "x";
  others[5].tags.role = "x";
  for (const FormatSpec& other : others) EXPECT_NE(Fingerprint(other), Fingerprint(base));
  EXPECT_EQ(Fingerprint(DefaultFormat(RowFormat::kShareGpt)), Fingerprint(base));
  EXPECT_THAT(UnusedColumns(Json("{}"), base), IsEmpty());
}

}  // namespace
}  // namespace penstock
