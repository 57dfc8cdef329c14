#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/memory/host_memory.h"
#include "engine/train/calibrate.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kBlockBytes = int64_t{8} << 20;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A file without a name: it is gone with its descriptor, whatever happens.
class NamelessFile {
 public:
  explicit NamelessFile(const std::string& directory) {
    // Some file systems, such as tmpfs, have no direct I/O.
    descriptor_ = open(directory.c_str(), O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    if (descriptor_ >= 0) return;
    descriptor_ = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  }
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;
  ~NamelessFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

// All of `bytes` in blocks, by pread or pwrite of the same memory.
template <typename Transfer>
bool MoveAll(int64_t bytes, Transfer transfer) {
  for (int64_t at = 0; at < bytes;) {
    const ssize_t moved = transfer(std::min(kBlockBytes, bytes - at), at);
    if (moved <= 0) return false;
    at += moved;
  }
  return true;
}

}  // namespace

absl::StatusOr<StorageRates> MeasureStorage(const std::string& directory, int64_t bytes) {
  const auto failed = [&](const char* what) {
    return Error(absl::StatusCode::kUnavailable, reason::kIoError,
                 absl::StrCat("cannot measure storage in ", directory, ": ", what, ": ",
                              std::strerror(errno), "; it needs ", FormatBytes(bytes), " free"),
                 {{"path", directory}});
  };
  bytes = RoundUp(bytes, kBlockBytes);
  PENSTOCK_ASSIGN_OR_RETURN(HostMemory memory, HostMemory::Allocate(kBlockBytes));
  // Drives that compress see noise.
  uint64_t random = 1;
  for (std::byte& byte : std::span(memory.data(), static_cast<size_t>(kBlockBytes))) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(random >> 56);
  }
  const NamelessFile file(directory);
  if (file.get() < 0) return failed("no file can be made");
  StorageRates rates;
  const auto count = static_cast<double>(bytes);
  Clock::time_point start = Clock::now();
  const bool written = MoveAll(bytes, [&](int64_t count, int64_t at) {
    return pwrite(file.get(), memory.data(), static_cast<size_t>(count), at);
  });
  if (!written || fdatasync(file.get()) != 0) return failed("writing");
  rates.write_bytes = count / SecondsSince(start);
  posix_fadvise(file.get(), 0, bytes, POSIX_FADV_DONTNEED);
  start = Clock::now();
  const bool read = MoveAll(bytes, [&](int64_t count, int64_t at) {
    return pread(file.get(), memory.data(), static_cast<size_t>(count), at);
  });
  if (!read) return failed("reading");
  rates.read_bytes = count / SecondsSince(start);
  return rates;
}

}  // namespace penstock
