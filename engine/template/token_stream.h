// A cursor over tokens, as the two halves of the parser share it.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/template/token.h"

namespace penstock::jinja {

// How people write a token: its text, or "end of template" and the like.
std::string Describe(const Token& token);

class TokenStream {
 public:
  // REQUIRES: the last token is kEnd.
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[position_]; }
  const Token& next() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  int line() const { return current().line; }
  bool at_end() const { return current().type == TokenType::kEnd; }
  bool Is(TokenType type) const { return current().type == type; }
  bool IsName(std::string_view name) const { return current().IsName(name); }
  bool IsOperator(std::string_view op) const { return current().IsOperator(op); }

  // The current token; moves to the next one.
  Token Take();
  bool TakeName(std::string_view name);
  bool TakeOperator(std::string_view op);
  absl::Status ExpectName(std::string_view name);
  absl::Status ExpectOperator(std::string_view op);
  // A token of this type, called `what` in the error.
  absl::StatusOr<Token> Expect(TokenType type, std::string_view what);
  absl::Status Unexpected(std::string_view wanted) const;

 private:
  std::vector<Token> tokens_;
  size_t position_ = 0;
};

}  // namespace penstock::jinja
