#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace penstock::fuzz {

// A file without a disk, written again for every case: opening real ones would take all the time.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("penstock_fuzz", MFD_CLOEXEC)) {}
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(fd_); }

  // The path of a file of this content.
  std::string Write(const std::string& content) const {
    const auto size = static_cast<ssize_t>(content.size());
    if (ftruncate(fd_, 0) != 0 || pwrite(fd_, content.data(), content.size(), 0) != size) {
      std::abort();
    }
    return "/proc/self/fd/" + std::to_string(fd_);
  }

 private:
  const int fd_;
};

}  // namespace penstock::fuzz
