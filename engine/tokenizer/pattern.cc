#include "engine/tokenizer/pattern.h"

#include <oniguruma.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "engine/tokenizer/scan_program.h"

namespace penstock {
namespace {

// Patterns that people use need a few steps a character.
constexpr int64_t kStepsAtLeast = 10'000'000;
constexpr int64_t kStepsPerByte = 64;
constexpr size_t kMaxExpressionBytes = 1 << 16;

int64_t StepLimit(std::string_view text) {
  return kStepsAtLeast + kStepsPerByte * static_cast<int64_t>(text.size());
}

const OnigUChar* Bytes(const char* p) { return reinterpret_cast<const OnigUChar*>(p); }

std::string OnigError(int code, OnigErrorInfo* info) {
  OnigUChar buffer[ONIG_MAX_ERROR_MESSAGE_LEN];
  const int length = info == nullptr ? onig_error_code_to_str(buffer, code)
                                     : onig_error_code_to_str(buffer, code, info);
  return std::string(reinterpret_cast<const char*>(buffer), static_cast<size_t>(length));
}

// Oniguruma's tables are made once; making them from two threads at once is a race.
void Initialize() {
  static std::once_flag once;
  std::call_once(once, [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
  });
}

// Whether the next search goes on from behind an empty match that was refused.
bool SkipsEmpty(size_t begin, size_t end, std::optional<size_t> last_end) {
  return begin == end && last_end == end;
}

size_t AfterCharacter(std::string_view text, size_t at) {
  return at + (at < text.size() ? static_cast<size_t>(Utf8Length(text[at])) : 1);
}

}  // namespace

struct Pattern::Oniguruma {
  ~Oniguruma() { onig_free(regex); }
  regex_t* regex = nullptr;
};

Pattern::Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

Pattern Pattern::Literal(std::string text) {
  Pattern pattern;
  pattern.text_ = std::move(text);
  return pattern;
}

absl::StatusOr<Pattern> Pattern::Regex(const std::string& expression, const std::string& where) {
  return RegexOn(Engine::kBest, expression, where);
}

absl::StatusOr<Pattern> Pattern::RegexOn(Engine engine, const std::string& expression,
                                         const std::string& where) {
  const auto invalid = [&](absl::string_view problem) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kModelInvalid,
                 absl::StrCat(where, " \"", expression.substr(0, 200), "\": ", problem));
  };
  if (expression.size() > kMaxExpressionBytes) {
    return invalid(absl::StrCat("has ", expression.size(), " bytes; at most ", kMaxExpressionBytes,
                                " are taken"));
  }
  Initialize();
  Pattern pattern;
  pattern.text_ = expression;
  pattern.oniguruma_ = std::make_unique<Oniguruma>();
  OnigErrorInfo info = {};
  const int result = onig_new(&pattern.oniguruma_->regex, Bytes(expression.data()),
                              Bytes(expression.data() + expression.size()), ONIG_OPTION_NONE,
                              ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
  if (result != ONIG_NORMAL) {
    return invalid(
        absl::StrCat("is no regular expression of Oniguruma: ", OnigError(result, &info)));
  }
  if (engine == Engine::kBest) pattern.scan_ = ScanProgram::Compile(expression);
  return pattern;
}

absl::Status Pattern::ForEachMatch(std::string_view text, OnMatch on_match) const {
  if (text.empty()) return absl::OkStatus();
  if (scan_ != nullptr) return EachScanned(text, on_match);
  return oniguruma_ != nullptr ? EachSearched(text, on_match) : EachLiteral(text, on_match);
}

absl::Status Pattern::EachLiteral(std::string_view text, OnMatch on_match) const {
  std::optional<size_t> last_end;
  for (size_t from = 0; from <= text.size();) {
    const size_t begin = text.find(text_, from);
    if (begin == std::string_view::npos) break;
    const size_t end = begin + text_.size();
    if (SkipsEmpty(begin, end, last_end)) {
      from = AfterCharacter(text, from);
      continue;
    }
    last_end = from = end;
    PENSTOCK_RETURN_IF_ERROR(on_match(begin, end));
  }
  return absl::OkStatus();
}

absl::Status Pattern::EachScanned(std::string_view text, OnMatch on_match) const {
  int64_t steps = StepLimit(text);
  size_t from = 0;
  while (const auto match = scan_->Search(text, from, steps)) {
    from = match->end;
    PENSTOCK_RETURN_IF_ERROR(on_match(match->begin, match->end));
  }
  if (steps <= 0) return TooManySteps(text, "its limit of steps is reached");
  return absl::OkStatus();
}

absl::Status Pattern::EachSearched(std::string_view text, OnMatch on_match) const {
  const std::unique_ptr<OnigRegion, void (*)(OnigRegion*)> region(
      onig_region_new(), [](OnigRegion* r) { onig_region_free(r, /*free_self=*/1); });
  const std::unique_ptr<OnigMatchParam, void (*)(OnigMatchParam*)> limits(
      onig_new_match_param(), [](OnigMatchParam* p) { onig_free_match_param(p); });
  onig_initialize_match_param(limits.get());
  const int64_t steps = StepLimit(text);
  onig_set_retry_limit_in_match_of_match_param(limits.get(), static_cast<unsigned long>(steps));
  onig_set_retry_limit_in_search_of_match_param(limits.get(), static_cast<unsigned long>(steps));
  onig_set_match_stack_limit_size_of_match_param(
      limits.get(), static_cast<unsigned int>(std::min<int64_t>(steps, 1 << 28)));

  const OnigUChar* const begin = Bytes(text.data());
  const OnigUChar* const end = Bytes(text.data() + text.size());
  std::optional<size_t> last_end;
  for (size_t from = 0; from <= text.size();) {
    const int found = onig_search_with_param(oniguruma_->regex, begin, end, begin + from, end,
                                             region.get(), ONIG_OPTION_NONE, limits.get());
    if (found == ONIG_MISMATCH) break;
    if (found < 0) return TooManySteps(text, OnigError(found, nullptr));
    const auto first = static_cast<size_t>(region->beg[0]);
    const auto last = static_cast<size_t>(region->end[0]);
    if (SkipsEmpty(first, last, last_end)) {
      from = AfterCharacter(text, from);
      continue;
    }
    last_end = from = last;
    PENSTOCK_RETURN_IF_ERROR(on_match(first, last));
  }
  return absl::OkStatus();
}

absl::Status Pattern::TooManySteps(std::string_view text, std::string_view problem) const {
  return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid,
               absl::StrCat("the tokenizer's pattern \"", text_.substr(0, 200),
                            "\" cannot be matched against a text of ", text.size(),
                            " bytes: ", std::string(problem),
                            "; split the document into smaller ones, or correct the pattern"));
}

}  // namespace penstock
