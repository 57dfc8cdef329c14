// What a daemon's surroundings have to offer, looked at once at the start: each finding names what
// was found and the way out.
#pragma once

#include <sys/resource.h>

#include <optional>
#include <string>
#include <vector>

#include "engine/memory/host_memory.h"

namespace penstock::server {

// Limits of this process, whatever a unit file says: where a container or a shell sets them,
// systemd's LimitMEMLOCK=infinity may have no effect.
struct ProcessLimits {
  rlim_t locked_bytes = RLIM_INFINITY;
  rlim_t open_files = RLIM_INFINITY;
  bool may_lock_any = false;  // CAP_IPC_LOCK: the limit does not bind
};
ProcessLimits ReadProcessLimits();
// `host_bytes` is what jobs may reserve, and lock if they run on a GPU; `streams` those that may be
// open.
std::vector<std::string> WarningsAbout(const ProcessLimits& limits, bool has_gpu,
                                       int64_t host_bytes, int64_t streams);

// The memory that Slurm gave to the job around this process. It may end a job for what it takes
// beyond, by polling, where no cgroup shows the limit. Nothing outside Slurm. `environment` returns
// null for what is not set.
using Environment = const char* (*)(const char* name);
std::optional<HostMemoryLimit> SlurmMemory(Environment environment);

}  // namespace penstock::server
