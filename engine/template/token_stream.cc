#include "engine/template/token_stream.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/text.h"

namespace penstock::jinja {

std::string Describe(const Token& token) {
  switch (token.type) {
    case TokenType::kData:
      return "template text";
    case TokenType::kVariableBegin:
      return "'{{'";
    case TokenType::kVariableEnd:
      return "'}}'";
    case TokenType::kBlockBegin:
      return "'{%'";
    case TokenType::kBlockEnd:
      return "'%}'";
    case TokenType::kString:
      return "a string";
    case TokenType::kEnd:
      return "the end of the template";
    default:
      return absl::StrCat("'", token.text.substr(0, 60), "'");
  }
}

Token TokenStream::Take() {
  const Token& token = tokens_[position_];
  if (position_ + 1 < tokens_.size()) ++position_;
  return token;
}

bool TokenStream::TakeName(std::string_view name) {
  if (!IsName(name)) return false;
  Take();
  return true;
}

bool TokenStream::TakeOperator(std::string_view op) {
  if (!IsOperator(op)) return false;
  Take();
  return true;
}

absl::Status TokenStream::ExpectName(std::string_view name) {
  if (TakeName(name)) return absl::OkStatus();
  return Unexpected(absl::StrCat("'", Absl(name), "'"));
}

absl::Status TokenStream::ExpectOperator(std::string_view op) {
  if (TakeOperator(op)) return absl::OkStatus();
  return Unexpected(absl::StrCat("'", Absl(op), "'"));
}

absl::StatusOr<Token> TokenStream::Expect(TokenType type, std::string_view what) {
  if (!Is(type)) return Unexpected(what);
  return Take();
}

absl::Status TokenStream::Unexpected(std::string_view wanted) const {
  return SyntaxError(line(),
                     absl::StrCat("expected ", Absl(wanted), ", found ", Describe(current())));
}

}  // namespace penstock::jinja
