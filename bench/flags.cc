#include "bench/flags.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

// False if there is no such flag or the value is none of its kind.
bool Assign(const std::string& name, const std::string& value, const FlagTables& tables) {
  if (const auto text = tables.texts.find(name); text != tables.texts.end()) {
    *text->second = value;
    return true;
  }
  if (const auto number = tables.numbers.find(name); number != tables.numbers.end()) {
    return absl::SimpleAtoi(value, number->second) && *number->second >= 0 &&
           *number->second <= kLargestFlag;
  }
  const auto real = tables.reals.find(name);
  return real != tables.reals.end() && absl::SimpleAtod(value, real->second) &&
         *real->second >= 0 && *real->second <= static_cast<double>(kLargestFlag);
}

bool ParseWord(const std::string& word, const FlagTables& tables) {
  if (!absl::StartsWith(word, "--")) return false;
  const size_t equals = word.find('=');
  if (equals != std::string::npos) {
    return Assign(word.substr(2, equals - 2), word.substr(equals + 1), tables);
  }
  const auto found = tables.switches.find(word.substr(2));
  if (found == tables.switches.end()) return false;
  *found->second = true;
  return true;
}

}  // namespace

absl::Status ParseFlags(int argc, char** argv, const FlagTables& tables) {
  for (int i = 1; i < argc; ++i) {
    if (ParseWord(argv[i], tables)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot use ", argv[i], ": wanted --name=value, numbers up to ", kLargestFlag));
  }
  return absl::OkStatus();
}

}  // namespace penstock
