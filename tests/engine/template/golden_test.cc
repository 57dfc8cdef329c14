// What jinja2 makes of a few hundred templates, written by tests/reference/template_goldens.py.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "engine/base/status.h"
#include "engine/template/interpreter.h"
#include "engine/template/json_value.h"
#include "engine/template/parser.h"

namespace penstock::jinja {
namespace {

constexpr int64_t kNow = 1'700'000'000;  // the clock of template_oracle.py

Value ParseLine(const std::string& line) {
  const auto value = ParseJsonValue(line, "a golden", {.max_bytes = 1 << 20}, "DATA_INVALID");
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? *value : Value();
}

absl::StatusOr<Rendering> Render(const std::string& source, const Value& context) {
  RenderInput input;
  input.now_unix_seconds = kNow;
  for (const auto& [name, value] : context.dict()) {
    input.variables.emplace_back(name.string(), value);
  }
  const auto syntax = Parse(source);
  if (!syntax.ok()) return syntax.status();
  return Interpreter(*syntax, input, Limits()).Run();
}

TEST(TemplateGoldenTest, RendersWhatJinja2Renders) {
  std::ifstream file(std::string(std::getenv("PENSTOCK_TESTDATA")) + "/template/goldens.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  const Value shared = *ParseLine(line).Find("context");
  int count = 0;
  while (std::getline(file, line)) {
    const Value golden = ParseLine(line);
    ++count;
    const Value& own = *golden.Find("context");
    const std::string& source = golden.Find("template")->string();
    SCOPED_TRACE(golden.Find("name")->string() + ": " + source);
    const auto rendering = Render(source, own.is_none() ? shared : own);
    const Value& text = *golden.Find("text");
    if (text.is_none()) {
      EXPECT_FALSE(rendering.ok()) << rendering->text;
      continue;
    }
    ASSERT_TRUE(rendering.ok()) << rendering.status();
    EXPECT_EQ(rendering->text, text.string());
    std::vector<Value> spans;
    for (const GenerationSpan& span : rendering->generation) {
      spans.push_back(Value::List({Value::Int(span.begin), Value::Int(span.end)}));
    }
    EXPECT_TRUE(Equal(Value::List(spans), *golden.Find("generation")));
  }
  EXPECT_GT(count, 300);
}

}  // namespace
}  // namespace penstock::jinja
