// Command lines of the benchmark programs: words of the form --name=value, and --name for a switch.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"

namespace penstock {

// Where the value of each flag goes. Numbers are 0 to kLargestFlag, reals 0 up to it.
inline constexpr int64_t kLargestFlag = int64_t{1} << 24;
struct FlagTables {
  std::map<std::string, std::string*> texts = {};
  std::map<std::string, int64_t*> numbers = {};
  std::map<std::string, double*> reals = {};
  std::map<std::string, bool*> switches = {};
};

// InvalidArgument naming the word that cannot be used.
absl::Status ParseFlags(int argc, char** argv, const FlagTables& tables);

}  // namespace penstock
