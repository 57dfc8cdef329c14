// The grammar is a small part of JSON, and read by hand: a column for every error, no recursion
// that a hostile row could deepen, and no number that passes through floating point.
#include "engine/data/token_row.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

constexpr int64_t kIgnored = -100;
constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();

class TokenRowParser {
 public:
  TokenRowParser(std::string_view text, TokenRow& row) : text_(text), row_(row) {}

  std::optional<RowError> Parse() {
    row_.ids.clear();
    row_.trained.clear();
    SkipSpace();
    const bool parsed = Peek() == '[' ? ParseNumbers(Allow::kIds, row_.ids) : ParseObject();
    if (!parsed || !ExpectEnd() || !CheckRow()) return error_;
    return std::nullopt;
  }

 private:
  enum class Allow { kIds, kLabels };

  static constexpr char kEnd = '\0';
  char Peek() const { return pos_ < text_.size() ? text_[pos_] : kEnd; }

  void SkipSpace() {
    while (pos_ < text_.size() && (text_[pos_] == ' ' || text_[pos_] == '\t')) ++pos_;
  }

  bool Fail(std::string message) { return FailAt(pos_, std::move(message)); }
  bool FailAt(size_t pos, std::string message) {
    error_ = RowError{static_cast<int64_t>(pos) + 1, std::move(message)};
    return false;
  }

  // What stands at the cursor, fit for a message whatever it is.
  std::string Found() const {
    if (pos_ >= text_.size()) return "the end of the line";
    const unsigned char c = static_cast<unsigned char>(text_[pos_]);
    if (c == 0) return "a NUL byte";
    if (!absl::ascii_isprint(c)) return absl::StrCat("byte 0x", absl::Hex(c, absl::kZeroPad2));
    return absl::StrCat("'", std::string(1, text_[pos_]), "'");
  }

  bool Expect(char wanted) {
    SkipSpace();
    if (Peek() != wanted || pos_ >= text_.size()) {
      return Fail(absl::StrCat("found ", Found(), ", expected '", std::string(1, wanted), "'"));
    }
    ++pos_;
    return true;
  }

  bool ExpectEnd() {
    SkipSpace();
    if (pos_ < text_.size()) {
      return Fail(absl::StrCat("found ", Found(), " after the row, expected the end of the line"));
    }
    return true;
  }

  bool ParseObject() {
    if (Peek() != '{') {
      return Fail(absl::StrCat("found ", Found(),
                               R"(, expected a row: {"ids": [...], "labels": [...]} or [...])"));
    }
    ++pos_;
    do {
      if (!ParseMember()) return false;
      SkipSpace();
    } while (Peek() == ',' && ++pos_ > 0);
    return Expect('}');
  }

  bool ParseMember() {
    SkipSpace();
    const size_t key_at = pos_;
    if (!Expect('"')) return false;
    const size_t close = text_.find('"', pos_);
    if (close == std::string_view::npos) return Fail("a key without its closing quote");
    const std::string_view key = text_.substr(pos_, close - pos_);
    pos_ = close + 1;
    if (!Expect(':')) return false;
    SkipSpace();
    if (key == "ids") {
      if (seen_ids_) return FailAt(key_at, R"(key "ids" is there twice)");
      seen_ids_ = true;
      return ParseNumbers(Allow::kIds, row_.ids);
    }
    if (key == "labels") {
      if (seen_labels_) return FailAt(key_at, R"(key "labels" is there twice)");
      seen_labels_ = true;
      labels_at_ = pos_;
      return ParseNumbers(Allow::kLabels, labels_);
    }
    return FailAt(key_at, absl::StrCat("unknown key \"", Shown(key),
                                       R"("; a row has "ids" and, if wanted, "labels")"));
  }

  static std::string Shown(std::string_view key) {
    constexpr size_t kMaxShown = 40;
    return absl::CHexEscape(std::string(key.substr(0, kMaxShown))) +
           (key.size() > kMaxShown ? "..." : "");
  }

  bool ParseNumbers(Allow allow, std::vector<int32_t>& numbers) {
    if (!Expect('[')) return false;
    SkipSpace();
    if (Peek() == ']') {
      ++pos_;
      return true;
    }
    do {
      SkipSpace();
      if (!ParseNumber(allow, numbers)) return false;
      SkipSpace();
    } while (Peek() == ',' && ++pos_ > 0);
    return Expect(']');
  }

  bool ParseNumber(Allow allow, std::vector<int32_t>& numbers) {
    const size_t start = pos_;
    const bool negative = Peek() == '-';
    if (negative) ++pos_;
    const size_t digits = pos_;
    int64_t value = 0;
    for (; absl::ascii_isdigit(static_cast<unsigned char>(Peek())); ++pos_) {
      if (value <= kMaxId) value = value * 10 + (text_[pos_] - '0');  // stays over it once over
    }
    if (pos_ == digits) return Fail(absl::StrCat("found ", Found(), ", expected an integer"));
    if (text_[digits] == '0' && pos_ - digits > 1) {
      return FailAt(start, "a number with a leading zero, expected an integer");
    }
    if (Peek() == '.' || Peek() == 'e' || Peek() == 'E') {
      return FailAt(start, "a number with a fraction or exponent, expected an integer");
    }
    if (negative) value = -value;
    const bool ignored = allow == Allow::kLabels && value == kIgnored;
    if ((value < 0 || value > kMaxId) && !ignored) {
      return FailAt(start, absl::StrCat(allow == Allow::kIds ? "token id " : "label ",
                                        Digits(start), " is outside 0..", kMaxId,
                                        allow == Allow::kIds ? "" : " and is not -100"));
    }
    numbers.push_back(static_cast<int32_t>(value));
    return true;
  }

  // The number from `start` to the cursor, shortened to what a message can hold.
  std::string Digits(size_t start) const {
    return std::string(text_.substr(start, std::min<size_t>(pos_ - start, 24)));
  }

  bool CheckRow() {
    if (row_.ids.empty()) {
      return FailAt(
          0, seen_labels_ && !seen_ids_ ? R"(the row has no "ids")" : "the row has no token ids");
    }
    if (!seen_labels_) return true;
    if (labels_.size() != row_.ids.size()) {
      return FailAt(labels_at_, absl::StrCat(labels_.size(), " labels for ", row_.ids.size(),
                                             " ids, expected as many"));
    }
    row_.trained.resize(labels_.size());
    for (size_t i = 0; i < labels_.size(); ++i) {
      if (labels_[i] != kIgnored && labels_[i] != row_.ids[i]) {
        return FailAt(labels_at_, absl::StrCat("label ", i, " (from 0) is ", labels_[i],
                                               ", expected the id at its place, ", row_.ids[i],
                                               ", or -100; labels are not shifted"));
      }
      row_.trained[i] = labels_[i] == kIgnored ? 0 : 1;
    }
    return true;
  }

  const std::string_view text_;
  TokenRow& row_;
  size_t pos_ = 0;
  bool seen_ids_ = false;
  bool seen_labels_ = false;
  size_t labels_at_ = 0;
  std::vector<int32_t> labels_;
  RowError error_;
};

}  // namespace

std::optional<RowError> ParseTokenRow(std::string_view line, TokenRow& row) {
  return TokenRowParser(line, row).Parse();
}

bool BeginsJsonArrayOfRows(std::string_view line) {
  const auto next = [&line](size_t from) {
    while (from < line.size() && absl::ascii_isspace(static_cast<unsigned char>(line[from]))) {
      ++from;
    }
    return from;
  };
  const size_t first = next(0);
  if (first == line.size() || line[first] != '[') return false;
  const size_t second = next(first + 1);
  return second == line.size() || line[second] == '[' || line[second] == '{';
}

}  // namespace penstock
