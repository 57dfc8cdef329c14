// The tokens of a template.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock::jinja {

enum class TokenType : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  int line = 0;
  std::string text;  // data, a name, a string's value, an operator, the digits of a number
  int64_t integer = 0;
  double real = 0;

  bool IsName(std::string_view name) const { return type == TokenType::kName && text == name; }
  bool IsOperator(std::string_view op) const { return type == TokenType::kOperator && text == op; }
};

// An error of a template's text, with its line: "line 3: ...".
absl::Status SyntaxError(int line, std::string_view message);

// Splits a template as jinja2 does with trim_blocks and lstrip_blocks, which is how Hugging Face
// reads chat templates. White space that those and `-` remove is gone from the data tokens. The
// last token is kEnd. InvalidArgument for what cannot be split, beyond 1 MiB, or not UTF-8.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace penstock::jinja
