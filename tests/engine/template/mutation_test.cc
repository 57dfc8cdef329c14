// Templates with pieces cut, doubled and swapped: whatever they say, a render ends with text or an
// error. With the address sanitizer this is the fuzzer of the lexer, the parser and the
// interpreter.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "engine/template/builtin_templates.h"
#include "engine/template/interpreter.h"
#include "engine/template/json_value.h"
#include "engine/template/parser.h"

namespace penstock::jinja {
namespace {

constexpr int kRounds = 50'000;

struct Seed {
  std::string source;
  Value context;
};

std::vector<Seed> LoadSeeds() {
  std::ifstream file(std::string(std::getenv("PENSTOCK_TESTDATA")) + "/template/goldens.jsonl");
  const auto parse = [](const std::string& line) {
    return ParseJsonValue(line, "a golden", {.max_bytes = 1 << 20}, "DATA_INVALID").value();
  };
  std::string line;
  std::getline(file, line);
  const Value shared = *parse(line).Find("context");
  std::vector<Seed> seeds;
  while (std::getline(file, line)) {
    const Value golden = parse(line);
    const Value& own = *golden.Find("context");
    seeds.push_back({golden.Find("template")->string(), own.is_none() ? shared : own});
  }
  for (const std::string& name : BuiltInTemplateNames()) {
    seeds.push_back({BuiltInTemplate(name)->source(), shared});
  }
  return seeds;
}

class Mutator {
 public:
  explicit Mutator(const std::vector<Seed>& seeds) : seeds_(seeds) {}

  std::string Mutated(std::string text) {
    for (size_t i = Below(4) + 1; i > 0; --i) Step(&text);
    return text.substr(0, 20'000);
  }
  size_t Below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }

 private:
  void Step(std::string* text) {
    constexpr const char* kPieces[] = {"{%",
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
                                       "9223372036854775807",
                                       "''",
                                       "loop",
                                       " is ",
                                       "not ",
                                       "{% endfor %}",
                                       "{% endif %}",
                                       "\xff",
                                       "é"};
    const size_t begin = Below(text->size() + 1);
    const size_t size = Below(std::min<size_t>(text->size() - begin, 40) + 1);
    switch (Below(5)) {
      case 0:
        text->erase(begin, size);
        break;
      case 1:
        text->insert(Below(text->size() + 1), text->substr(begin, size));
        break;
      case 2:
        text->insert(begin, kPieces[Below(std::size(kPieces))]);
        break;
      case 3: {
        const std::string& other = seeds_[Below(seeds_.size())].source;
        const size_t from = Below(other.size());
        text->insert(begin, other.substr(from, Below(60)));
        break;
      }
      default:
        if (begin < text->size()) (*text)[begin] = static_cast<char>(Below(256));
    }
  }

  const std::vector<Seed>& seeds_;
  std::mt19937 random_{20261128};
};

TEST(TemplateMutationTest, EveryRenderEnds) {
  const std::vector<Seed> seeds = LoadSeeds();
  ASSERT_GT(seeds.size(), 300u);
  Mutator mutator(seeds);
  Limits limits;
  limits.max_steps = 20'000;
  limits.max_value_bytes = 1 << 16;
  limits.max_total_bytes = 1 << 22;
  int parsed = 0, rendered = 0;
  for (int round = 0; round < kRounds; ++round) {
    const Seed& seed = seeds[mutator.Below(seeds.size())];
    const std::string source = mutator.Mutated(seed.source);
    const auto syntax = Parse(source);
    if (!syntax.ok()) {
      ASSERT_FALSE(syntax.status().message().empty());
      continue;
    }
    ++parsed;
    RenderInput input;
    for (const auto& [name, value] : seed.context.dict()) {
      input.variables.emplace_back(name.string(), value);
    }
    const auto rendering = Interpreter(*syntax, input, limits).Run();
    if (rendering.ok()) ++rendered;
  }
  // Enough of them get far.
  EXPECT_GT(parsed, kRounds / 10);
  EXPECT_GT(rendered, kRounds / 50);
}

}  // namespace
}  // namespace penstock::jinja
