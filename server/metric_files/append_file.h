// A file that grows by whole pieces: what of a piece a full disk took is cut off again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace penstock::server {

class AppendFile {
 public:
  // Creates the file if there is none; cuts what lies behind `keep_bytes`.
  static absl::StatusOr<AppendFile> Open(const std::string& path, int64_t keep_bytes);
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;
  ~AppendFile();

  absl::Status Append(std::string_view bytes);

 private:
  AppendFile(std::string path, int fd, int64_t end) : path_(std::move(path)), fd_(fd), end_(end) {}
  std::string path_;
  int fd_;
  int64_t end_;
};

}  // namespace penstock::server
