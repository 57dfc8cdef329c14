// Renders templates for comparison with jinja2 (tests/reference/template_goldens.py).
// Reads lines of JSON {"template": ..., "context": {...}} and answers each with a line
// {"text": ..., "generation": [[begin, end], ...]} or {"error": ...}.
// With --built-in NAME it prints the source of a built-in template instead.
#include <iostream>
#include <string>

#include "engine/base/status.h"
#include "engine/template/builtin_templates.h"
#include "engine/template/interpreter.h"
#include "engine/template/json_value.h"
#include "engine/template/parser.h"
#include "nlohmann/json.hpp"

namespace penstock::jinja {
namespace {

constexpr int64_t kNow = 1'700'000'000;

nlohmann::json Render(const std::string& line) {
  const auto failed = [](const absl::Status& status) {
    return nlohmann::json{{"error", std::string(status.message())}};
  };
  const auto request =
      ParseJsonValue(line, "the request", {.max_bytes = int64_t{1} << 30}, reason::kDataInvalid);
  if (!request.ok()) return failed(request.status());
  const auto syntax = Parse(request->Find("template")->string());
  if (!syntax.ok()) return failed(syntax.status());
  RenderInput input;
  input.now_unix_seconds = kNow;
  for (const auto& [name, value] : request->Find("context")->dict()) {
    input.variables.emplace_back(name.string(), value);
  }
  const auto rendering = Interpreter(*syntax, input, Limits()).Run();
  if (!rendering.ok()) return failed(rendering.status());
  nlohmann::json spans = nlohmann::json::array();
  for (const GenerationSpan& span : rendering->generation) {
    spans.push_back({span.begin, span.end});
  }
  return {{"text", rendering->text}, {"generation", spans}};
}

}  // namespace
}  // namespace penstock::jinja

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--built-in") {
    const auto built_in = penstock::BuiltInTemplate(argv[2]);
    if (built_in.ok()) std::cout << built_in->source();
    return built_in.ok() ? 0 : 1;
  }
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << penstock::jinja::Render(line).dump() << '\n' << std::flush;
  }
}
