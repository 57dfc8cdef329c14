// What splitting and replacing search for: a literal text, or a regular expression in Oniguruma's
// dialect, in which tokenizer.json files are written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace penstock {

class ScanProgram;

// Thread-safe once made.
class Pattern {
 public:
  static Pattern Literal(std::string text);

  // MODEL_INVALID, beginning with `where` ("tokenizer.json: pre_tokenizer.pattern.Regex"), if
  // Oniguruma refuses the expression.
  static absl::StatusOr<Pattern> Regex(const std::string& expression, const std::string& where);

  // kOniguruma keeps to the library even where a ScanProgram would do; tests compare the two.
  enum class Engine : uint8_t { kBest, kOniguruma };
  static absl::StatusOr<Pattern> RegexOn(Engine engine, const std::string& expression,
                                         const std::string& where);

  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  // Calls `on_match` with begin and end of each match, in order; an error it gives ends the
  // search. Matches don't overlap; an empty one never follows another match directly.
  // InvalidArgument / DATA_INVALID if the expression needs too many steps for this text, as
  // (a+)+$ does. REQUIRES: `text` is UTF-8.
  using OnMatch = absl::FunctionRef<absl::Status(size_t begin, size_t end)>;
  absl::Status ForEachMatch(std::string_view text, OnMatch on_match) const;

  bool has_scan_program() const { return scan_ != nullptr; }

 private:
  struct Oniguruma;
  Pattern();

  absl::Status EachLiteral(std::string_view text, OnMatch on_match) const;
  absl::Status EachScanned(std::string_view text, OnMatch on_match) const;
  absl::Status EachSearched(std::string_view text, OnMatch on_match) const;
  absl::Status TooManySteps(std::string_view text, std::string_view problem) const;

  std::string text_;  // the literal, or the expression for messages
  std::unique_ptr<ScanProgram> scan_;
  std::unique_ptr<Oniguruma> oniguruma_;
};

}  // namespace penstock
