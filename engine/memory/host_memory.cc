#include "engine/memory/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "engine/base/units.h"

namespace penstock {
namespace {

// The smallest page of a machine that we run on.
constexpr int64_t kPageBytes = 4096;

}  // namespace

absl::StatusOr<HostMemory> HostMemory::Allocate(int64_t bytes) {
  if (bytes == 0) return HostMemory();
  // Kernels differ in whether they start a large mapping on a huge page; so map one more and give
  // back what lies outside.
  void* mapping = MAP_FAILED;
  errno = ENOMEM;  // for a size that is none
  if (bytes > 0 && bytes <= std::numeric_limits<int64_t>::max() - kHugePageBytes) {
    mapping = mmap(nullptr, bytes + kHugePageBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (mapping == MAP_FAILED) {
    return Error(absl::StatusCode::kResourceExhausted, reason::kHostMemoryInsufficient,
                 absl::StrCat("cannot map ", FormatBytes(bytes), " of host memory: ",
                              std::strerror(errno), "; use a smaller model or a larger machine"),
                 {{"needed_bytes", absl::StrCat(bytes)}});
  }
  std::byte* const begin = static_cast<std::byte*>(mapping);
  const int64_t before = -reinterpret_cast<intptr_t>(begin) & (kHugePageBytes - 1);
  std::byte* const data = begin + before;
  std::byte* const end = data + RoundUp(bytes, kPageBytes);
  if (before > 0) munmap(begin, before);
  munmap(end, begin + bytes + kHugePageBytes - end);
  madvise(data, bytes, MADV_HUGEPAGE);  // Best effort: without it the memory is only slower.
  return HostMemory(data, bytes);
}

HostMemory::HostMemory(HostMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

HostMemory::~HostMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

void TouchPages(std::span<std::byte> range, ThreadPool& pool) {
  const int64_t bytes = static_cast<int64_t>(range.size());
  pool.ParallelFor(CeilDiv(bytes, kHugePageBytes), [&](int64_t task, int /*worker*/) {
    const int64_t end = std::min((task + 1) * kHugePageBytes, bytes);
    for (int64_t at = task * kHugePageBytes; at < end; at += kPageBytes) {
      // A read alone would map the one page of zeros that all processes share.
      volatile std::byte* const byte = range.data() + at;
      *byte = *byte;
    }
  });
}

namespace {

std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  int64_t value = 0;
  if (!(file >> word) || !absl::SimpleAtoi(word, &value)) return std::nullopt;  // also "max"
  return value;
}

// "inactive_file" of memory.stat: page cache that the kernel gives back before it kills.
int64_t ReclaimableBytes(const std::string& directory) {
  std::ifstream file(directory + "/memory.stat");
  std::string key;
  int64_t value = 0;
  while (file >> key >> value) {
    if (key == "inactive_file" || key == "total_inactive_file") return value;
  }
  return 0;
}

void Tighten(HostMemoryLimit& limit, const std::string& directory, const char* limit_name,
             const char* usage_name) {
  const std::string path = absl::StrCat(directory, "/", limit_name);
  const std::optional<int64_t> max = ReadNumber(path);
  if (!max || *max >= (int64_t{1} << 60)) return;  // cgroup v1 writes "no limit" as 2^63-4096
  const int64_t used = ReadNumber(absl::StrCat(directory, "/", usage_name)).value_or(0);
  const int64_t usable = std::max<int64_t>(0, *max - used + ReclaimableBytes(directory));
  if (usable < limit.usable_bytes) limit = {usable, path};
}

}  // namespace

HostMemoryLimit ReadHostMemoryLimit() { return ReadHostMemoryLimit(MemoryLimitFiles{}); }

HostMemoryLimit ReadHostMemoryLimit(const MemoryLimitFiles& files) {
  HostMemoryLimit limit{int64_t{1} << 60, "machine"};
  std::ifstream meminfo(files.meminfo);
  for (std::string line; std::getline(meminfo, line);) {
    if (!absl::StartsWith(line, "MemAvailable:")) continue;
    std::istringstream words(line.substr(13));
    int64_t kib = 0;
    if (words >> kib) limit.usable_bytes = kib * 1024;
  }
  // A limit may sit at any level above our own group, so walk up to the root.
  std::ifstream groups(files.groups);
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const bool v2 = parts[0] == "0" && parts[1].empty();
    if (!v2 && !absl::StrContains(absl::StrCat(",", parts[1], ","), ",memory,")) continue;
    const std::string root = v2 ? files.cgroup_root : files.cgroup_root + "/memory";
    for (std::string path = parts[2];;) {
      Tighten(limit, root + path, v2 ? "memory.max" : "memory.limit_in_bytes",
              v2 ? "memory.current" : "memory.usage_in_bytes");
      if (path.empty() || path == "/") break;
      path.resize(path.rfind('/'));
    }
  }
  return limit;
}

}  // namespace penstock
