// Anonymous private memory with transparent huge pages: what the host store and the arenas
// are made of. Faster to touch and to register with a GPU than any other kind
// (docs/architecture.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/thread_pool.h"

namespace penstock {

// The largest page that we ask for.
inline constexpr int64_t kHugePageBytes = int64_t{2} << 20;

// Sole owner of one mapping. Zero-filled; movable. Starts on a huge page.
class HostMemory {
 public:
  // Reserves addresses only: a page is found and cleared when it is first touched (TouchPages).
  // ResourceExhausted / HOST_MEMORY_INSUFFICIENT with the bytes wanted if the kernel refuses.
  // `bytes` of 0 gives an empty object.
  static absl::StatusOr<HostMemory> Allocate(int64_t bytes);

  HostMemory() = default;
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;
  ~HostMemory();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  HostMemory(std::byte* data, int64_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Makes the pages of a range resident, all threads of the pool at once; changes no byte. Thread i
// of n touches the i-th n-th of the range, which puts it on that thread's NUMA node.
// REQUIRES: nobody else writes to the range meanwhile.
void TouchPages(std::span<std::byte> range, ThreadPool& pool);

// What this process may still use: the least of MemAvailable and, for every enclosing cgroup
// (v1 and v2), limit minus usage. `source` names the one that binds ("machine" or the path of
// the cgroup file).
struct HostMemoryLimit {
  int64_t usable_bytes = 0;
  std::string source;
};
HostMemoryLimit ReadHostMemoryLimit();

// Where that is read.
struct MemoryLimitFiles {
  std::string meminfo = "/proc/meminfo";
  std::string groups = "/proc/self/cgroup";
  std::string cgroup_root = "/sys/fs/cgroup";  // of v2; v1 has its memory groups in "memory" there
};
HostMemoryLimit ReadHostMemoryLimit(const MemoryLimitFiles& files);

}  // namespace penstock
