// Which columns of a row mean what, as data. engine/data/row_format.h reads rows by it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

// Everything of the spec, for the token cache's key.
std::string Fingerprint(const FormatSpec& spec);

}  // namespace penstock
