// Runs the cases of a fuzz target in a process of its own, so that a crash, a hang or a case that
// eats the memory is one more finding and not the end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/fuzz/target.h"

namespace penstock::fuzz {

// Case n >= kCasesOfASeed of a seed is case n - kCasesOfASeed of the next seed.
inline constexpr int64_t kCasesOfASeed = int64_t{1} << 24;

struct RunArgs {
  std::string testdata;
  int64_t seed = 1;
  int64_t first_case = 0;
  std::optional<int64_t> cases = {};   // and no more
  std::optional<double> seconds = {};  // about so long; with `cases`, whichever comes first
  double max_case_seconds = 600;       // a case that takes longer hangs; machines may be busy
  int64_t max_memory_bytes = int64_t{3} << 30;  // of the process, sanitizer included
};

struct Finding {
  int64_t seed = 0;
  int64_t case_number = 0;
  std::string what;
};

struct RunResult {
  int64_t cases = 0;
  int64_t accepted = 0;
  int64_t slowest_case = 0;
  double slowest_seconds = 0;
  std::vector<Finding> findings;  // at most kMaxFindings, with which the run ends
};

inline constexpr size_t kMaxFindings = 10;

RunResult Fuzz(const TargetFactory& factory, const RunArgs& args);

}  // namespace penstock::fuzz
