// Templates that would never end, or take all memory, are stopped; what is wrong is said with its
// line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/template/chat_template.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::Status StatusOf(const std::string& source, const ChatOptions& options = {}) {
  const auto chat_template = ChatTemplate::Parse(source, "t");
  if (!chat_template.ok()) return chat_template.status();
  Conversation conversation;
  conversation.messages =
      jinja::Value::List({jinja::Value::Dict(std::vector<std::pair<std::string, jinja::Value>>{
          {"role", jinja::Value::String("user")}, {"content", jinja::Value::String("hi")}})});
  return RenderChat(*chat_template, conversation, options, GenerationPrompt::kNo).status();
}

std::string ErrorOf(const std::string& source) { return std::string(StatusOf(source).message()); }

std::string Repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

// BC-52
TEST(TemplateLimitsTest, StopsALoopOfABillionRounds) {
  const absl::Status status = StatusOf(
      "{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}"
      "{% endfor %}{% endfor %}{% endfor %}");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), AllOf(StartsWith("t, line 1: "), HasSubstr("steps")));
  EXPECT_THAT(ErrorOf("{% for a in range(1000000000) %}{% endfor %}"), HasSubstr("range"));
}

TEST(TemplateLimitsTest, StopsRecursionWithoutEnd) {
  const absl::Status status = StatusOf("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}\n{{ m(0) }}");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("deeper than 600 levels"));
  EXPECT_THAT(ErrorOf("{% macro m(n) %}{{ m(n - 1) if n else 'end' }}{% endmacro %}{{ m(10000) }}"),
              HasSubstr("deeper than"));
  EXPECT_THAT(ErrorOf("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
              HasSubstr("deeper than"));
  EXPECT_TRUE(
      StatusOf("{% macro m(n) %}{{ m(n - 1) if n else 'end' }}{% endmacro %}{{ m(100) }}").ok());
}

TEST(TemplateLimitsTest, RefusesTextThatNestsTooDeep) {
  for (const auto& [open, close] : {std::pair<std::string, std::string>{"(", ")"},
                                    {"[", "]"},
                                    {"{1:", "}"},
                                    {"not ", ""},
                                    {"- ", ""},
                                    {"x(", ")"},
                                    {"x[", "]"},
                                    {"x if x else ", ""},
                                    {"x|d(", ")"}}) {
    const std::string deep = Repeated(open, 10000) + "1" + Repeated(close, 10000);
    EXPECT_THAT(ErrorOf("{{ " + deep + " }}"), HasSubstr("deeper than 200 levels")) << open;
  }
  for (const std::string& chain :
       {std::string("+ x "), std::string(".x"), std::string("[0]"), std::string("|d"),
        std::string(" is none"), std::string("()"), std::string(" and x"), std::string(" if x")}) {
    EXPECT_FALSE(StatusOf("{{ x " + Repeated(chain, 10000) + " }}").ok()) << chain;
  }
  EXPECT_THAT(ErrorOf(Repeated("{% if 1 %}", 10000) + Repeated("{% endif %}", 10000)),
              HasSubstr("blocks nest deeper than 200 levels"));
  EXPECT_TRUE(StatusOf("{{ " + Repeated("(", 90) + "1" + Repeated(")", 90) + " }}").ok());
  EXPECT_TRUE(StatusOf("{{ 'a' " + Repeated("~ 'b' ", 10000) + " }}").ok());
}

// Each of these takes minutes, or all memory, where a cost is forgotten.
TEST(TemplateLimitsTest, ManyNamesAreCheapOrRefused) {
  const auto numbered = [](const std::string& before, int count, const std::string& after) {
    std::string out;
    for (int i = 0; i < count; ++i) absl::StrAppend(&out, before, i, after);
    return out;
  };
  const std::string names = numbered("{{ a", 10'000, " }}");
  EXPECT_TRUE(StatusOf(names + numbered("{% if b %}{% set c", 10'000, " = 1 %}{% endif %}")).ok());
  EXPECT_TRUE(
      StatusOf(names + "{% if a %}" + numbered("{% elif b %}{{ c", 10'000, " }}") + "{% endif %}")
          .ok());
  EXPECT_TRUE(StatusOf(Repeated("{% if 1 %}", 190) + numbered("{{ a", 1000, " }}") +
                       Repeated("{% endif %}", 190))
                  .ok());
  EXPECT_THAT(ErrorOf(Repeated("{% for x in y %}", 190) + numbered("{{ a", 40'000, " }}") +
                      Repeated("{% endfor %}", 190)),
              HasSubstr("too many names for how deep its loops and macros nest"));
  EXPECT_THAT(ErrorOf("{% macro m(a" + numbered(", a", 300, "") + ") %}{% endmacro %}"),
              HasSubstr("more than 255 parameters"));
  EXPECT_THAT(ErrorOf("{{ dict(a=1" + numbered(", a", 300, "=1") + ") }}"),
              HasSubstr("more than 255 named arguments"));

  const std::string unread = "{% if 0 %}" + names + "{% endif %}";
  EXPECT_THAT(ErrorOf("{% for i in range(100000) %}" + unread + "{% endfor %}"),
              HasSubstr("steps"));
  EXPECT_THAT(
      ErrorOf("{% for i in range(100000) %}{% with %}" + unread + "{% endwith %}" + "{% endfor %}"),
      HasSubstr("steps"));
  const std::string keeping = "{% macro m() %}{% macro n() %}{% endmacro %}" + unread +
                              "{% endmacro %}{% for i in range(100000) %}{{ m() }}{% endfor %}";
  ChatOptions patient;
  patient.limits.max_steps = int64_t{1} << 40;
  patient.limits.max_total_bytes = 1 << 24;
  EXPECT_THAT(std::string(StatusOf(keeping, patient).message()), HasSubstr("bytes of values"));
  EXPECT_THAT(
      ErrorOf("{% set n = namespace(**dict(" +
              std::string("range(100000) | map('string') | "
                          "batch(2) | list)) %}{% for i in range(100000) %}{% set n.x = 1 %}") +
              "{% endfor %}"),
      HasSubstr("steps"));
}

TEST(TemplateLimitsTest, StopsStringsAndListsThatGrow) {
  ChatOptions small;
  small.limits.max_value_bytes = 1 << 20;
  small.limits.max_output_bytes = 1 << 22;
  small.limits.max_total_bytes = 1 << 24;
  const auto error_of = [&](const std::string& source) {
    return std::string(StatusOf(source, small).message());
  };
  EXPECT_THAT(error_of("{{ 'x' * 1000000000000 }}"), HasSubstr("a string of"));
  EXPECT_THAT(error_of("{{ [1] * 1000000000000 }}"), HasSubstr("a list of"));
  EXPECT_THAT(error_of("{{ '%999999999d' % 1 }}"), HasSubstr("width"));
  EXPECT_THAT(error_of("{{ 'a'.center(999999999999) }}"), HasSubstr("a string of"));
  EXPECT_THAT(error_of("{{ 'a' | indent(999999999999) }}"), HasSubstr("a string of"));
  EXPECT_THAT(error_of("{{ ('a' * 100000).replace('a', 'b' * 100000) }}"),
              HasSubstr("a string of"));
  EXPECT_THAT(error_of("{{ ('a' * 1000) | list | join('b' * 100000) }}"), HasSubstr("a string of"));
  EXPECT_THAT(error_of("{% set n = namespace(s='ab') %}{% for i in range(100) %}"
                       "{% set n.s = n.s ~ n.s %}{% endfor %}"),
              HasSubstr("a string of"));
  EXPECT_THAT(error_of("{% set n = namespace(s=[1]) %}{% for i in range(100) %}"
                       "{% set n.s = n.s + n.s %}{% endfor %}"),
              HasSubstr("a list of"));
  // A list that holds itself twice, again and again, is small but takes for ever to print.
  EXPECT_THAT(error_of("{% set n = namespace(s=[1]) %}{% for i in range(100) %}"
                       "{% set n.s = [n.s, n.s] %}{% endfor %}"),
              HasSubstr("a list of"));
  EXPECT_THAT(error_of("{% for i in range(10000) %}{{ 'x' * 100000 }}{% endfor %}"),
              HasSubstr("bytes"));
  EXPECT_THAT(error_of("{% for i in range(100000) %}{% set x = 'x' * 100000 %}{% endfor %}"),
              HasSubstr("bytes of values"));
}

TEST(TemplateLimitsTest, ValuesThatNestOrGoInCirclesEndWell) {
  for (const std::string& step :
       {std::string("[n.s]"), std::string("{'a': n.s}"), std::string("(n.s,)"),
        std::string("n.s | map('upper')"), std::string("cycler(n.s)"),
        std::string("dict(a=n.s).items()"), std::string("dict(a=n.s).get"),
        std::string("joiner(n.s)"), std::string("['x'] | map('replace', n.s)")}) {
    EXPECT_THAT(ErrorOf("{% set n = namespace(s=[1]) %}{% for i in range(100000) %}{% set n.s = " +
                        step + " %}{% endfor %}"),
                HasSubstr("nests values deeper than 100 levels"))
        << step;
  }
  // A hundred thousand namespaces in a chain, and some in a circle.
  EXPECT_TRUE(StatusOf("{% set n = namespace(s=1) %}{% for i in range(100000) %}"
                       "{% set n.s = namespace(a=n.s) %}{% endfor %}")
                  .ok());
  EXPECT_TRUE(StatusOf("{% set n = namespace() %}{% set n.a = n %}{% set n.b = [n] %}"
                       "{% macro m() %}{% endmacro %}{% set n.m = m %}{{ n.a.a.a is defined }}")
                  .ok());
  EXPECT_THAT(ErrorOf("{% set n = namespace() %}{% set n.a = n %}{{ n }}"), HasSubstr("too deep"));
  EXPECT_TRUE(
      StatusOf("{% set n = namespace(l=[]) %}{% for i in range(20000) %}{% for x in n.l %}"
               "{% endfor %}{% for y in [1] %}{% set n.l = [loop] %}{% endfor %}{% endfor %}")
          .ok());
}

TEST(TemplateLimitsTest, SearchesOfHardTextsAreCheapOrStopped) {
  EXPECT_TRUE(StatusOf("{{ ('a' * 100000 ~ 'b') in ('a' * 2000000) }}").ok());
  EXPECT_TRUE(StatusOf("{{ ('a' * 1000000).count('a' * 4000 ~ 'b') }}").ok());
  EXPECT_THAT(ErrorOf("{{ ('a' * 2000000).rfind('b' ~ 'a' * 1000000) }}"), HasSubstr("steps"));
  EXPECT_THAT(ErrorOf("{% set a = 'a' * 1000000 %}{% set b = 'a' * 1000000 %}"
                      "{% for i in range(100000) %}{% set x = a == b %}{% endfor %}"),
              HasSubstr("steps"));
}

TEST(TemplateErrorsTest, NameTheTemplateTheLineAndTheThing) {
  EXPECT_EQ(ErrorOf("a\n{{ x }}\n{{ x.y }}"), "t, line 3: 'x' is undefined");
  EXPECT_EQ(ErrorOf("\n\n{{ messages[0].name.first }}"),
            "t, line 3: 'dict object' has no attribute 'name'");
  EXPECT_EQ(ErrorOf("{{ 1 }}\n{% if x %}"), "t, line 2: the template ends before {% endif %}");
  EXPECT_THAT(ErrorOf("\n{% include 'x' %}"), HasSubstr("line 2: the tag {% include %} is not"));
  EXPECT_THAT(ErrorOf("\n\n{{ x | urlize }}"), HasSubstr("line 3: the filter urlize"));
  EXPECT_THAT(ErrorOf("{{ 'a' + 1 }}"), HasSubstr("+ does not go with str and int; use ~"));
  EXPECT_THAT(ErrorOf("{% macro m() %}\n{{ 1 / 0 }}{% endmacro %}\n\n{{ m() }}"),
              HasSubstr("line 2: division by zero"));
  EXPECT_THAT(ErrorOf("\n{{ raise_exception('Only one system message!') }}"),
              HasSubstr("line 2: the template refuses the conversation: Only one system message!"));
  EXPECT_THAT(ErrorOf("{{ messages | map(attribute='role') }}"), HasSubstr("| list"));
  EXPECT_THAT(ErrorOf("{{ messages[0].items }}"), HasSubstr("add ()"));
  EXPECT_THAT(ErrorOf("{{ 99999999999999999999 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(ErrorOf("{{ 9223372036854775807 + 1 }}"), HasSubstr("64-bit"));
  EXPECT_THAT(ErrorOf("\xff"), HasSubstr("UTF-8"));
  EXPECT_THAT(ErrorOf(std::string(5 << 20, 'x')), HasSubstr("bytes"));
}

// BC-52
TEST(TemplateErrorsTest, NeitherHostNorClockIsReached) {
  for (const std::string name : {"__import__", "self", "environ", "lipsum", "open", "config"}) {
    EXPECT_THAT(ErrorOf("{{ " + name + "() }}"), HasSubstr("is undefined")) << name;
  }
  EXPECT_FALSE(StatusOf("{{ ''.__class__.__mro__ }}").ok());
  EXPECT_FALSE(StatusOf("{{ messages.append(1) }}").ok());
  ChatOptions options;
  options.now_unix_seconds = 0;
  const auto chat_template = ChatTemplate::Parse("{{ strftime_now('%Y-%m-%d') }}", "t");
  ASSERT_TRUE(chat_template.ok());
  Conversation conversation;
  conversation.messages = jinja::Value::List({});
  const auto chat = RenderChat(*chat_template, conversation, options, GenerationPrompt::kNo);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->text, "1970-01-01");
}

TEST(TemplateErrorsTest, RefuseConversationsThatAreNone) {
  const auto chat_template = ChatTemplate::Parse("x", "t");
  ASSERT_TRUE(chat_template.ok());
  const auto error = [&](jinja::Value messages) {
    Conversation conversation;
    conversation.messages = std::move(messages);
    return std::string(
        RenderChat(*chat_template, conversation, {}, GenerationPrompt::kNo).status().message());
  };
  EXPECT_THAT(error(jinja::Value::String("hi")), HasSubstr("messages is no list"));
  EXPECT_THAT(error(jinja::Value::List({jinja::Value::String("hi")})),
              HasSubstr("message 0 is no"));
  EXPECT_THAT(error(jinja::Value::List(
                  {jinja::Value::Dict(std::vector<std::pair<std::string, jinja::Value>>{
                      {"content", jinja::Value::String("\xC3")}})})),
              HasSubstr("UTF-8"));
}

}  // namespace
}  // namespace penstock
