// Where `penstock run` keeps its daemon's state: the directory that was asked for, or a temporary
// one, which is removed unless it is kept.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace penstock::client {

class RunDirectory {
 public:
  // Empty `wanted`: a temporary one.
  static absl::StatusOr<std::unique_ptr<RunDirectory>> Create(const std::string& wanted);
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;
  ~RunDirectory();

  const std::string& path() const { return path_; }
  // Says where a temporary one is.
  void Keep();

 private:
  enum class Kind : uint8_t { kGiven, kTemporary };
  RunDirectory(std::string path, Kind kind);

  const std::string path_;
  Kind kind_;
};

}  // namespace penstock::client
