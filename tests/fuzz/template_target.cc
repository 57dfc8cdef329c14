// Templates with pieces cut, doubled and swapped: whatever they say, a render ends with text or an
// error.
#include <optional>

#include "engine/template/builtin_templates.h"
#include "engine/template/interpreter.h"
#include "engine/template/json_value.h"
#include "engine/template/parser.h"
#include "tests/fuzz/mutation.h"
#include "tests/fuzz/target.h"

namespace penstock::fuzz {
namespace {

using jinja::Value;

const std::vector<std::string> kDictionary = {"{%",
                                              "%}",
                                              "{{",
                                              "}}",
                                              "{#",
                                              "-",
                                              "+",
                                              "(",
                                              ")",
                                              "[",
                                              "]",
                                              "'",
                                              "\\",
                                              " if ",
                                              " else ",
                                              " for ",
                                              " in ",
                                              "|",
                                              ".",
                                              ":",
                                              "*",
                                              "**",
                                              ",",
                                              "=",
                                              "0",
                                              "''",
                                              "loop",
                                              " is ",
                                              "not ",
                                              "\xff",
                                              "é",
                                              "//",
                                              "%",
                                              "~",
                                              "<",
                                              "none",
                                              "9223372036854775807",
                                              "{% endfor %}",
                                              "{% endif %}",
                                              "{% generation %}",
                                              "{% endgeneration %}",
                                              "{% macro m(a) %}",
                                              "{% endmacro %}",
                                              "{{ m(m) }}",
                                              "{%- set ns.a = ns -%}",
                                              "|tojson(indent=4)",
                                              "|sort",
                                              "|join(',')",
                                              "|map('upper')",
                                              "|selectattr('role')",
                                              ".format(",
                                              "%s",
                                              "range(99999)",
                                              "[::-1]",
                                              "namespace(",
                                              "recursive"};

class TemplateTarget final : public Target {
 public:
  explicit TemplateTarget(const std::string& testdata) {
    const std::string file = ReadSeed(testdata + "/template/goldens.jsonl");
    std::optional<Value> shared;  // of the first line
    for (size_t begin = 0; begin < file.size();) {
      const size_t end = file.find('\n', begin);
      const absl::string_view line(file.data() + begin, end - begin);
      const Value golden =
          jinja::ParseJsonValue(line, "a golden", {.max_bytes = 1 << 20}, "DATA_INVALID").value();
      begin = end + 1;
      const Value& own = *golden.Find("context");
      if (!shared) {
        shared = own;
      } else {
        seeds_.push_back({golden.Find("template")->string(), own.is_none() ? *shared : own});
      }
    }
    for (const std::string& name : BuiltInTemplateNames()) {
      seeds_.push_back({BuiltInTemplate(name)->source(), *shared});
    }
  }

  absl::StatusOr<Outcome> RunCase(Random& random) override {
    const Seed& seed = random.Pick(seeds_);
    const std::string source =
        MutateText(seed.source, kDictionary, random.Pick(seeds_).source, random);
    const auto syntax = jinja::Parse(source);
    if (!syntax.ok()) return Refused(syntax.status(), source);
    jinja::RenderInput input;
    for (const auto& [name, value] : seed.context.dict()) {
      input.variables.emplace_back(name.string(), value);
    }
    const auto rendering = jinja::Interpreter(*syntax, input, Limits()).Run();
    if (!rendering.ok()) return Refused(rendering.status(), source);
    int64_t last_end = 0;
    for (const jinja::GenerationSpan& span : rendering->generation) {
      if (span.begin < last_end || span.end < span.begin ||
          span.end > static_cast<int64_t>(rendering->text.size())) {
        return Violation("generation spans out of order or out of the text", source);
      }
      last_end = span.end;
    }
    return Outcome::kAccepted;
  }

 private:
  struct Seed {
    std::string source;
    Value context;
  };

  static jinja::Limits Limits() {
    jinja::Limits limits;
    limits.max_steps = 20'000;
    limits.max_value_bytes = 1 << 16;
    limits.max_total_bytes = 1 << 22;
    return limits;
  }

  static absl::StatusOr<Outcome> Refused(const absl::Status& refusal, const std::string& source) {
    if (absl::Status status = CheckRefusal(refusal, source); !status.ok()) return status;
    return Outcome::kRefused;
  }

  std::vector<Seed> seeds_;
};

}  // namespace

std::unique_ptr<Target> MakeTemplateTarget(const std::string& testdata) {
  return std::make_unique<TemplateTarget>(testdata);
}

}  // namespace penstock::fuzz
