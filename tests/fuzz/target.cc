#include "tests/fuzz/target.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace penstock::fuzz {
namespace {

constexpr size_t kShownBytes = 4000;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

absl::Status Violation(std::string_view what, std::string_view input) {
  const bool cut = input.size() > kShownBytes;
  return absl::InternalError(absl::StrCat(View(what), "; input of ", input.size(), " bytes: \"",
                                          absl::CHexEscape(View(input.substr(0, kShownBytes))),
                                          "\"", cut ? "..." : ""));
}

absl::Status CheckRefusal(const absl::Status& refusal, std::string_view input) {
  if (!refusal.message().empty()) return absl::OkStatus();
  return Violation("refused without a reason", input);
}

std::string ReadSeed(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) {
    std::fprintf(stderr, "cannot read the seed %s; --testdata names its folder\n", path.c_str());
    std::abort();
  }
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace penstock::fuzz
