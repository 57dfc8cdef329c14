// Which columns of a row mean what: the formats that people's datasets come in.
//
//   alpaca             instruction, input, output; history and system if there
//   sharegpt           conversations of {"from", "value"}, turn and turn about
//   messages           OpenAI's: {"role", "content"}, tool_calls and whatever else a template knows
//   prompt_completion  two strings, or two lists of messages
//   text               one string
//
// Alpaca and ShareGPT follow LLaMA-Factory, but a row that it drops with a warning is a bad row
// here: the job is refused unless it allows bad rows to be skipped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/example.h"
#include "engine/data/row_error.h"

namespace penstock {

enum class RowFormat : uint8_t { kAlpaca, kShareGpt, kMessages, kPromptCompletion, kText };

std::string_view ToText(RowFormat format);  // "prompt_completion"

// The name of a column and whether rows must have it.
struct Column {
  enum class Need : uint8_t {
    kUnused,    // rows may have it; nobody looks
    kOptional,  // used where it is there and not null
    kNamed,     // the same, but asked for by name: some row must have it
    kRequired,  // every row must have it
  };
  std::string name = {};
  Need need = Need::kUnused;

  bool used() const { return need != Need::kUnused; }
  friend bool operator==(const Column&, const Column&) = default;
};

// Names as LLaMA-Factory has them, so that its dataset_info.json maps one to one.
struct Columns {
  Column prompt = {}, query = {}, response = {}, history = {};  // alpaca; prompt_completion
  Column messages = {};                                         // sharegpt, messages
  Column text = {};                                             // text
  Column system = {}, tools = {};
  friend bool operator==(const Columns&, const Columns&) = default;
};

// Of a message: the keys of role and content, and the names of the roles. An empty name is a role
// that does not occur.
struct Tags {
  std::string role, content, user, assistant, observation, function, system;
  friend bool operator==(const Tags&, const Tags&) = default;
};

// Which turns may follow each other.
enum class Turns : uint8_t {
  kFree,       // what the chat template takes
  kAlternate,  // LLaMA-Factory's rule: user or tool, then assistant, an even number of turns;
               // tool messages in a row are one turn, except in ShareGPT
};

struct FormatSpec {
  RowFormat format = RowFormat::kText;
  Turns turns = Turns::kFree;
  Columns columns = {};
  Tags tags = {};
  friend bool operator==(const FormatSpec&, const FormatSpec&) = default;
};

// The usual names. What a format can do without is optional.
FormatSpec DefaultFormat(RowFormat format);

// The format of a dataset whose first row is `row`, if its columns leave no doubt. Otherwise
// InvalidArgument / DATA_INVALID with the columns found, and what would do.
absl::StatusOr<FormatSpec> DetectFormat(const nlohmann::ordered_json& row);

// REQUIRES: `row` is an object. Errors name the column, and the message in it: "messages[2].role".
std::optional<RowError> ToExample(const nlohmann::ordered_json& row, const FormatSpec& spec,
                                  Example& example);

// The columns of `row` that `spec` does not look at.
std::vector<std::string> UnusedColumns(const nlohmann::ordered_json& row, const FormatSpec& spec);

// Everything of the spec, for the token cache's key.
std::string Fingerprint(const FormatSpec& spec);

}  // namespace penstock
