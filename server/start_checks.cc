#include "server/start_checks.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/units.h"

namespace penstock::server {
namespace {

constexpr int kCapIpcLock = 14;  // linux/capability.h
// Beside streams and jobs: the store, listeners, files that calls have open.
constexpr int64_t kFilesOfTheDaemon = 256;

bool HasEffectiveCapability(int capability) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!absl::StartsWith(line, "CapEff:")) continue;
    uint64_t set = 0;
    std::istringstream(line.substr(7)) >> std::hex >> set;
    return (set >> capability & 1) != 0;
  }
  return false;
}

rlim_t SoftLimit(__rlimit_resource resource) {
  struct rlimit limit {};
  return getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

// Slurm writes MiB.
std::optional<int64_t> Number(Environment environment, const char* name) {
  const char* text = environment(name);
  int64_t value = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &value) || value <= 0 ||
      value > (int64_t{1} << 40)) {
    return std::nullopt;
  }
  return value;
}

}  // namespace

ProcessLimits ReadProcessLimits() {
  return {.locked_bytes = SoftLimit(RLIMIT_MEMLOCK),
          .open_files = SoftLimit(RLIMIT_NOFILE),
          .may_lock_any = HasEffectiveCapability(kCapIpcLock)};
}

std::vector<std::string> WarningsAbout(const ProcessLimits& limits, bool has_gpu,
                                       int64_t host_bytes, int64_t streams) {
  std::vector<std::string> warnings;
  if (has_gpu && !limits.may_lock_any && limits.locked_bytes < static_cast<rlim_t>(host_bytes)) {
    warnings.push_back(absl::StrCat(
        "jobs on a GPU lock their host memory, and this process may lock ",
        FormatBytes(static_cast<int64_t>(limits.locked_bytes)), " of ", FormatBytes(host_bytes),
        ": larger jobs will be refused. Set LimitMEMLOCK=infinity in the unit, --ulimit memlock=-1 "
        "for a container, PropagateResourceLimitsExcept=MEMLOCK in slurm.conf, or "
        "limits.page_lock: preferred in the job"));
  }
  const int64_t files = streams + kFilesOfTheDaemon;
  if (limits.open_files < static_cast<rlim_t>(files)) {
    warnings.push_back(
        absl::StrCat("this process may open ", limits.open_files, " files, and ", files,
                     " may be needed for ", streams,
                     " streams: set LimitNOFILE=65536 in the unit, raise ulimit -n, or "
                     "lower max_streams"));
  }
  return warnings;
}

std::optional<HostMemoryLimit> SlurmMemory(Environment environment) {
  constexpr int64_t kMib = int64_t{1} << 20;
  if (const auto node = Number(environment, "SLURM_MEM_PER_NODE")) {
    return HostMemoryLimit{*node * kMib, "SLURM_MEM_PER_NODE"};
  }
  const auto each = Number(environment, "SLURM_MEM_PER_CPU");
  const auto cpus = Number(environment, "SLURM_CPUS_ON_NODE");
  if (!each || !cpus || *cpus > 1'000'000 || *each > (int64_t{1} << 30)) return std::nullopt;
  return HostMemoryLimit{*each * *cpus * kMib, "SLURM_MEM_PER_CPU"};
}

}  // namespace penstock::server
