// Anonymous private memory with transparent huge pages: what the host store and the arenas
// are made of. Faster to touch and to register with a GPU than any other kind
// (docs/architecture.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace penstock {

// Sole owner of one mapping. Zero-filled; movable.
class HostMemory {
 public:
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

// What this process may still use: the least of MemAvailable and, for every enclosing cgroup
// (v1 and v2), limit minus usage. `source` names the one that binds ("machine" or the path of
// the cgroup file).
struct HostMemoryLimit {
  int64_t usable_bytes = 0;
  std::string source;
};
HostMemoryLimit ReadHostMemoryLimit();

}  // namespace penstock
