// penstock_fuzz: readers of foreign bytes under hostile input.
//
//   penstock_fuzz [--target=NAME] [--seconds=N] [--cases=N] [--seed=N] [--first-case=N]
//                 [--testdata=DIR]
//
// Without --target all targets run, one after the other, each for its share of --seconds. Case n
// of a seed is always the same input; what is found is named by both, to be run again alone.
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "bench/flags.h"
#include "tests/fuzz/driver.h"

namespace penstock::fuzz {
namespace {

struct Options {
  std::string target = {};
  std::string testdata = "tests/testdata";
  int64_t seed = 1;
  int64_t first_case = 0;
  int64_t cases = 0;  // 0: as many as fit into `seconds`
  double seconds = 0;
};

// Fewer cases need not have both outcomes.
constexpr int64_t kCasesForBothOutcomes = 1000;

// Whether the target is clean.
bool RunTarget(const TargetFactory& factory, const Options& options, double seconds) {
  const std::string name(factory.name);
  RunArgs args{
      .testdata = options.testdata, .seed = options.seed, .first_case = options.first_case};
  if (options.cases > 0) args.cases = options.cases;
  if (seconds > 0) args.seconds = seconds;
  RunResult result = Fuzz(factory, args);
  std::printf("%-16s seed %lld, %lld cases, %lld accepted, %zu findings; case %lld took %.3f s\n",
              name.c_str(), static_cast<long long>(options.seed),
              static_cast<long long>(result.cases), static_cast<long long>(result.accepted),
              result.findings.size(), static_cast<long long>(result.slowest_case),
              result.slowest_seconds);
  std::fflush(stdout);
  if (result.cases >= kCasesForBothOutcomes && result.findings.empty() &&
      (result.accepted == 0 || result.accepted == result.cases)) {
    result.findings.push_back({.seed = options.seed,
                               .case_number = options.first_case,
                               .what = "all cases end the same: the damage does no damage, or "
                                       "nothing survives it"});
  }
  for (const Finding& finding : result.findings) {
    std::printf("FOUND by --target=%s --seed=%lld --first-case=%lld --cases=1: %s\n", name.c_str(),
                static_cast<long long>(finding.seed), static_cast<long long>(finding.case_number),
                finding.what.c_str());
  }
  return result.findings.empty();
}

int Main(int argc, char** argv) {
  Options options;
  const absl::Status parsed =
      ParseFlags(argc, argv,
                 {.texts = {{"target", &options.target}, {"testdata", &options.testdata}},
                  .numbers = {{"seed", &options.seed},
                              {"first-case", &options.first_case},
                              {"cases", &options.cases}},
                  .reals = {{"seconds", &options.seconds}}});
  if (!parsed.ok()) {
    std::fprintf(stderr, "%s\n", std::string(parsed.message()).c_str());
    return 2;
  }
  if (options.cases == 0 && options.seconds == 0) options.seconds = 60;
  std::string names;
  bool clean = true, found = false;
  for (const TargetFactory& factory : Targets()) {
    absl::StrAppend(&names, " ", std::string(factory.name));
    if (!options.target.empty() && options.target != factory.name) continue;
    found = true;
    const double share = options.target.empty() ? static_cast<double>(Targets().size()) : 1;
    clean &= RunTarget(factory, options, options.seconds / share);
  }
  if (!found) {
    std::fprintf(stderr, "--target: found %s, expected one of:%s\n", options.target.c_str(),
                 names.c_str());
    return 2;
  }
  return clean ? 0 : 1;
}

}  // namespace
}  // namespace penstock::fuzz

int main(int argc, char** argv) { return penstock::fuzz::Main(argc, argv); }
