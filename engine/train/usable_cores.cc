#include "engine/train/usable_cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace penstock {
namespace {

// "max 100000" or "150000 100000": microseconds of CPU time in a period. 0: no limit.
double QuotaV2(const std::string& directory) {
  std::ifstream file(directory + "/cpu.max");
  std::string quota;
  double microseconds = 0, period = 0;
  if (!(file >> quota >> period) || !absl::SimpleAtod(quota, &microseconds)) return 0;
  return period > 0 && microseconds > 0 ? microseconds / period : 0;
}

// -1 is "no limit".
double QuotaV1(const std::string& directory) {
  std::ifstream quota_file(directory + "/cpu.cfs_quota_us");
  std::ifstream period_file(directory + "/cpu.cfs_period_us");
  double microseconds = 0, period = 0;
  if (!(quota_file >> microseconds) || !(period_file >> period)) return 0;
  return period > 0 && microseconds > 0 ? microseconds / period : 0;
}

bool ControlsCpu(const std::string& controllers) {
  const std::vector<std::string> names = absl::StrSplit(controllers, ',');
  return std::find(names.begin(), names.end(), "cpu") != names.end();
}

}  // namespace

int CpuQuotaCores(const std::string& cgroup_file, const std::string& root) {
  double least = 0;
  std::ifstream groups(cgroup_file);
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const bool v2 = parts[0] == "0" && parts[1].empty();
    if (!v2 && !ControlsCpu(parts[1])) continue;
    const std::string mount = v2 ? root : absl::StrCat(root, "/cpu");
    // A limit may sit at any level above our own group.
    for (std::string path = parts[2];;) {
      const double quota = v2 ? QuotaV2(mount + path) : QuotaV1(mount + path);
      if (quota > 0) least = least > 0 ? std::min(least, quota) : quota;
      if (path.empty() || path == "/") break;
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
  return static_cast<int>(std::min(std::ceil(least), 1e6));
}

int UsableCores() {
  cpu_set_t set;
  int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  const int quota = CpuQuotaCores("/proc/self/cgroup", "/sys/fs/cgroup");
  if (quota > 0) cores = std::min(cores, quota);
  return std::max(1, cores);
}

}  // namespace penstock
