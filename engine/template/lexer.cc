// A template is text with three kinds of tags; outside tags only white space control matters,
// inside there are Python-like tokens. The rules follow jinja2's lexer to the letter, as a
// newline more or less changes what a model is trained on:
//  - one newline at the very end of the template is dropped; \r\n and \r become \n;
//  - `-` beside a tag removes all white space on that side;
//  - a newline right after a block or comment is dropped (trim_blocks);
//  - blanks between the start of a line and a block or comment are dropped (lstrip_blocks);
//  - `+` keeps what the last two rules would drop.
#include <cctype>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/limits.h"
#include "engine/template/text.h"
#include "engine/template/token.h"

namespace penstock::jinja {
namespace {

bool IsNameStart(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool IsDigitChar(char c) { return c >= '0' && c <= '9'; }
bool IsNameChar(char c) { return IsNameStart(c) || IsDigitChar(c); }

// \r\n and \r become \n; one newline at the end goes.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (position_ < source_.size()) PENSTOCK_RETURN_IF_ERROR(LexData());
    Add(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  bool Has(std::string_view text) const { return HasAt(position_, text); }
  bool HasAt(size_t at, std::string_view text) const {
    return at <= source_.size() && source_.compare(at, text.size(), text) == 0;
  }
  size_t SkipSpace(size_t at) const {
    while (at < source_.size()) {
      size_t next = at;
      if (!IsSpace(NextCodePoint(source_, &next))) break;
      at = next;
    }
    return at;
  }
  void Add(TokenType type, std::string text) {
    Token token;
    token.type = type;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
  }
  // Moves to `end`, counting lines.
  void Advance(size_t end) {
    for (; position_ < end; ++position_) line_ += source_[position_] == '\n' ? 1 : 0;
  }

  absl::Status LexData();
  void AddData(size_t begin, size_t end, char control, bool is_variable);
  bool MatchRawBegin(size_t at, size_t* end) const;
  absl::Status LexRaw();
  absl::Status LexComment();
  absl::Status LexTag(bool is_variable);
  bool LexTagEnd(bool is_variable);
  absl::Status LexTagToken();
  bool LexNumber();
  bool LexFloat(size_t* end) const;
  size_t SkipDigits(size_t at, std::string_view digits) const;
  absl::Status AddInteger(size_t end, int base);
  absl::Status LexString();
  absl::StatusOr<std::string> Unescape(std::string_view body) const;
  absl::Status LexOperator();

  const std::string source_;
  size_t position_ = 0;
  int line_ = 1;
  // The match before ended with a newline (or nothing was matched yet), so that blanks at the
  // start of the data that follows start a line.
  bool line_starting_ = true;
  std::vector<char> open_;  // closing brackets that are still to come
  std::vector<Token> tokens_;
  absl::Status number_error_;
};

// Template text up to the next tag, and the tag.
absl::Status Lexer::LexData() {
  const size_t begin = position_;
  size_t tag = begin;
  while ((tag = source_.find('{', tag)) != std::string::npos) {
    if (tag + 1 < source_.size() &&
        (source_[tag + 1] == '{' || source_[tag + 1] == '%' || source_[tag + 1] == '#')) {
      break;
    }
    ++tag;
  }
  if (tag == std::string::npos) {
    Add(TokenType::kData, source_.substr(begin));
    Advance(source_.size());
    return absl::OkStatus();
  }
  const char kind = source_[tag + 1];
  size_t after = tag + 2;
  const char control = after < source_.size() && (source_[after] == '-' || source_[after] == '+')
                           ? source_[after]
                           : '\0';
  if (control != '\0') ++after;
  AddData(begin, tag, control, kind == '{');
  Advance(tag);
  size_t raw_end = 0;
  if (kind == '%' && MatchRawBegin(after, &raw_end)) {
    line_starting_ = source_[raw_end - 1] == '\n';
    Advance(raw_end);
    return LexRaw();
  }
  line_starting_ = false;
  if (kind == '#') {
    Advance(after);
    return LexComment();
  }
  Add(kind == '{' ? TokenType::kVariableBegin : TokenType::kBlockBegin, "");
  Advance(after);
  return LexTag(kind == '{');
}

// The text [begin, end) before a tag, as far as white space control leaves it.
void Lexer::AddData(size_t begin, size_t end, char control, bool is_variable) {
  std::string_view text(source_.data() + begin, end - begin);
  if (control == '-') {
    text = Strip(text, Side::kRight);
  } else if (control != '+' && !is_variable) {
    const size_t newline = text.rfind('\n');
    const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    if ((line > 0 || line_starting_) && Strip(text.substr(line), Side::kRight).empty()) {
      text = text.substr(0, line);
    }
  }
  if (!text.empty()) Add(TokenType::kData, std::string(text));
}

// Whether "raw" and the end of its tag follow at `at`.
bool Lexer::MatchRawBegin(size_t at, size_t* end) const {
  at = SkipSpace(at);
  if (!HasAt(at, "raw")) return false;
  at = SkipSpace(at + 3);
  if (HasAt(at, "-%}")) {
    *end = SkipSpace(at + 3);
    return true;
  }
  *end = at + 2;
  return HasAt(at, "%}");
}

// Text up to {% endraw %}, as it stands.
absl::Status Lexer::LexRaw() {
  const size_t begin = position_;
  for (size_t tag = begin; (tag = source_.find("{%", tag)) != std::string::npos; tag += 2) {
    size_t at = tag + 2;
    char control = '\0';
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) control = source_[at++];
    at = SkipSpace(at);
    if (!HasAt(at, "endraw")) continue;
    at = SkipSpace(at + 6);
    size_t end = 0;
    if (HasAt(at, "+%}")) {
      end = at + 3;
    } else if (HasAt(at, "-%}")) {
      end = SkipSpace(at + 3);
    } else if (HasAt(at, "%}")) {
      end = at + 2;
      if (HasAt(end, "\n")) ++end;
    } else {
      continue;
    }
    AddData(begin, tag, control, /*is_variable=*/false);
    line_starting_ = source_[end - 1] == '\n';
    Advance(end);
    return absl::OkStatus();
  }
  if (begin >= source_.size()) return absl::OkStatus();
  return SyntaxError(line_, "the raw block has no {% endraw %}");
}

absl::Status Lexer::LexComment() {
  const size_t close = source_.find("#}", position_);
  if (close == std::string::npos) {
    if (position_ >= source_.size()) return absl::OkStatus();
    return SyntaxError(line_, "the comment has no end (#})");
  }
  size_t end = close + 2;
  const char control = close > position_ ? source_[close - 1] : '\0';
  if (control == '-') {
    end = SkipSpace(end);
  } else if (control != '+' && HasAt(end, "\n")) {
    ++end;
  }
  line_starting_ = source_[end - 1] == '\n';
  Advance(end);
  return absl::OkStatus();
}

absl::Status Lexer::LexTag(bool is_variable) {
  open_.clear();
  while (position_ < source_.size()) {
    if (open_.empty() && LexTagEnd(is_variable)) return absl::OkStatus();
    const size_t after_space = SkipSpace(position_);
    if (after_space > position_) {
      Advance(after_space);
      continue;
    }
    PENSTOCK_RETURN_IF_ERROR(LexTagToken());
  }
  return absl::OkStatus();  // The parser says what is missing.
}

bool Lexer::LexTagEnd(bool is_variable) {
  const std::string_view close = is_variable ? "}}" : "%}";
  size_t end = position_;
  if (Has(close)) {
    end += 2;
    if (!is_variable && HasAt(end, "\n")) ++end;
  } else if (source_[position_] == '-' && HasAt(position_ + 1, close)) {
    end = SkipSpace(position_ + 3);
  } else if (!is_variable && source_[position_] == '+' && HasAt(position_ + 1, close)) {
    end += 3;
  } else {
    return false;
  }
  Add(is_variable ? TokenType::kVariableEnd : TokenType::kBlockEnd, "");
  line_starting_ = source_[end - 1] == '\n';
  Advance(end);
  return true;
}

absl::Status Lexer::LexTagToken() {
  const char c = source_[position_];
  if (IsDigitChar(c) && LexNumber()) return number_error_;
  if (IsNameStart(c)) {
    size_t end = position_;
    while (end < source_.size() && IsNameChar(source_[end])) ++end;
    Add(TokenType::kName, source_.substr(position_, end - position_));
    Advance(end);
    return absl::OkStatus();
  }
  if (c == '\'' || c == '"') return LexString();
  return LexOperator();
}

// Past digits with single underscores between them; `at` itself if there is none.
size_t Lexer::SkipDigits(size_t at, std::string_view digits) const {
  const auto is_digit = [&](size_t i) {
    return i < source_.size() &&
           digits.find(static_cast<char>(std::tolower(static_cast<unsigned char>(source_[i])))) !=
               digits.npos;
  };
  while (is_digit(at) || (at < source_.size() && source_[at] == '_' && is_digit(at + 1))) ++at;
  return at;
}

constexpr std::string_view kDecimalDigits = "0123456789";

// Digits with a fraction, an exponent or both.
bool Lexer::LexFloat(size_t* end) const {
  if (position_ > 0 && source_[position_ - 1] == '.') return false;
  size_t at = SkipDigits(position_, kDecimalDigits);
  bool is_float = false;
  if (at + 1 < source_.size() && source_[at] == '.' && IsDigitChar(source_[at + 1])) {
    at = SkipDigits(at + 1, kDecimalDigits);
    is_float = true;
  }
  if (at < source_.size() && (source_[at] == 'e' || source_[at] == 'E')) {
    size_t digits = at + 1;
    if (digits < source_.size() && (source_[digits] == '+' || source_[digits] == '-')) ++digits;
    if (digits < source_.size() && IsDigitChar(source_[digits])) {
      at = SkipDigits(digits, kDecimalDigits);
      is_float = true;
    }
  }
  *end = at;
  return is_float;
}

bool Lexer::LexNumber() {
  size_t end = position_;
  if (LexFloat(&end)) {
    std::string digits = source_.substr(position_, end - position_);
    std::erase(digits, '_');
    Add(TokenType::kFloat, digits);
    // Out of range is infinity or zero, as in Python, which from_chars leaves to us.
    tokens_.back().real = std::strtod(digits.c_str(), nullptr);
    Advance(end);
    number_error_ = absl::OkStatus();
    return true;
  }
  if (source_[position_] == '0' && position_ + 1 < source_.size()) {
    const char mark =
        static_cast<char>(std::tolower(static_cast<unsigned char>(source_[position_ + 1])));
    const std::string_view digits = mark == 'x'   ? "0123456789abcdef"
                                    : mark == 'o' ? "01234567"
                                    : mark == 'b' ? "01"
                                                  : "";
    if (!digits.empty() && (end = SkipDigits(position_ + 2, digits)) > position_ + 2) {
      number_error_ = AddInteger(end, static_cast<int>(digits.size()));
      return true;
    }
  }
  // A number that starts with 0 is zeros only: 01 is two tokens.
  end = SkipDigits(position_, source_[position_] == '0' ? "0" : kDecimalDigits);
  number_error_ = AddInteger(end, 10);
  return true;
}

absl::Status Lexer::AddInteger(size_t end, int base) {
  std::string digits = source_.substr(position_, end - position_);
  std::erase(digits, '_');
  const char* first = digits.data() + (base == 10 ? 0 : 2);
  int64_t value = 0;
  const auto result = std::from_chars(first, digits.data() + digits.size(), value, base);
  if (result.ec != std::errc()) {
    return SyntaxError(line_, absl::StrCat("the number ", digits.substr(0, 40),
                                           " is out of range; 64 bits are supported"));
  }
  Add(TokenType::kInteger, digits);
  tokens_.back().integer = value;
  Advance(end);
  return absl::OkStatus();
}

absl::Status Lexer::LexString() {
  const char quote = source_[position_];
  size_t end = position_ + 1;
  while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size()) return SyntaxError(line_, "the string has no closing quote");
  PENSTOCK_ASSIGN_OR_RETURN(std::string value, Unescape(std::string_view(source_).substr(
                                                   position_ + 1, end - position_ - 1)));
  Add(TokenType::kString, std::move(value));
  Advance(end + 1);
  return absl::OkStatus();
}

// Digits of an escape: \x41, \u0041, \101. False if there are fewer than `least`.
bool ReadDigits(std::string_view text, size_t* at, int base, int least, int most, char32_t* value) {
  *value = 0;
  int count = 0;
  for (; count < most && *at < text.size(); ++count, ++*at) {
    int digit = 0;
    const char* c = text.data() + *at;
    if (std::from_chars(c, c + 1, digit, base).ec != std::errc()) break;
    *value = *value * static_cast<char32_t>(base) + static_cast<char32_t>(digit);
  }
  return count >= least;
}

// Python's escapes; an unknown one stays as it is, backslash included.
absl::StatusOr<std::string> Lexer::Unescape(std::string_view body) const {
  constexpr std::string_view kPlain = "\\'\"abfnrtv";
  constexpr std::string_view kMeaning = "\\'\"\a\b\f\n\r\t\v";
  std::string out;
  for (size_t at = 0; at < body.size();) {
    if (body[at] != '\\') {
      out.push_back(body[at++]);
      continue;
    }
    const char c = body[++at];  // A backslash is never last: it would escape the quote.
    if (const size_t plain = kPlain.find(c); plain != kPlain.npos) {
      out.push_back(kMeaning[plain]);
      ++at;
    } else if (c == '\n') {
      ++at;
    } else if (c == 'x' || c == 'u' || c == 'U' || (c >= '0' && c <= '7')) {
      const int length = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 3;
      const bool octal = length == 3;
      if (!octal) ++at;
      char32_t value = 0;
      if (!ReadDigits(body, &at, octal ? 8 : 16, octal ? 1 : length, length, &value) ||
          value > 0x10FFFF) {
        return SyntaxError(line_, absl::StrCat("broken escape \\", std::string(1, c)));
      }
      if (value >= 0xD800 && value < 0xE000) {
        return SyntaxError(line_, "an escape stands for half a surrogate pair; use \\U");
      }
      AppendUtf8(value, &out);
    } else if (c == 'N') {
      return SyntaxError(line_, "\\N{...} is not supported; write the character or \\u");
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      // jinja2 escapes the character first, so that what is left is the text of that escape.
      const char32_t value = NextCodePoint(body, &at);
      const int width = value < 0x100 ? 2 : value < 0x10000 ? 4 : 8;
      const char mark = width == 2 ? 'x' : width == 4 ? 'u' : 'U';
      const std::string hex =
          absl::StrCat(absl::Hex(static_cast<uint32_t>(value), absl::kZeroPad8));
      absl::StrAppend(&out, "\\", std::string(1, mark), hex.substr(hex.size() - width));
    } else {
      out.push_back('\\');
    }
  }
  return out;
}

absl::Status Lexer::LexOperator() {
  constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
  constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
  for (const std::string_view op : kTwo) {
    if (!Has(op)) continue;
    Add(TokenType::kOperator, std::string(op));
    Advance(position_ + 2);
    return absl::OkStatus();
  }
  const char c = source_[position_];
  if (kOne.find(c) == kOne.npos) {
    return SyntaxError(line_, absl::StrCat("unexpected character '",
                                           source_.substr(position_, Utf8Length(c)), "' in a tag"));
  }
  if (c == '(' || c == '[' || c == '{') {
    open_.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
  } else if (c == ')' || c == ']' || c == '}') {
    if (open_.empty() || open_.back() != c) {
      return SyntaxError(
          line_, absl::StrCat("unexpected '", std::string(1, c), "'",
                              open_.empty() ? std::string()
                                            : absl::StrCat(", expected '",
                                                           std::string(1, open_.back()), "'")));
    }
    open_.pop_back();
  }
  Add(TokenType::kOperator, std::string(1, c));
  Advance(position_ + 1);
  return absl::OkStatus();
}

}  // namespace

absl::Status SyntaxError(int line, std::string_view message) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid,
               absl::StrCat("line ", line, ": ", Absl(message)));
}

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  if (static_cast<int64_t>(source.size()) > kMaxTemplateBytes) {
    return SyntaxError(1, absl::StrCat("the template has ", source.size(), " bytes, more than ",
                                       kMaxTemplateBytes));
  }
  if (!IsValidUtf8(source)) return SyntaxError(1, "the template is not valid UTF-8");
  return Lexer(NormalizeNewlines(source)).Run();
}

}  // namespace penstock::jinja
