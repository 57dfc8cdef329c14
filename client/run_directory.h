// Where `penstock run` keeps its daemon's state: the directory that was asked for, or a temporary
// one, which is removed unless it is kept.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
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
  // FailedPrecondition / LOCK_HELD, with what it says of itself, if a daemon has the directory:
  // that of another `penstock run`, or one of an earlier run that is still saving. A scheduler that
  // lost track starts a job twice.
  absl::Status CheckFree() const;
  // Says where a temporary one is.
  void Keep();

 private:
  enum class Kind : uint8_t { kGiven, kTemporary };
  RunDirectory(std::string path, Kind kind);

  const std::string path_;
  Kind kind_;
};

}  // namespace penstock::client
