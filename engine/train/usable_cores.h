// How many threads compute may use: what the affinity mask and the cgroups' CPU quotas leave. No
// variable of a launcher counts, such as OMP_NUM_THREADS=1 (BC-59); limits.compute_threads does.
#pragma once

#include <string>

namespace penstock {

int UsableCores();

// The least quota of the cgroups that `cgroup_file` (as /proc/self/cgroup) names and of those they
// lie in, in whole cores, rounded up; 0 if none is set. `root` is where cgroups are mounted.
int CpuQuotaCores(const std::string& cgroup_file, const std::string& root);

}  // namespace penstock
