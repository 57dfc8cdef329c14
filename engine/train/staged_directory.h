// A directory that appears complete or not at all: built under a temporary name beside its
// destination, then renamed.
//
//   Create --> write files --> Commit     every file and directory is on the device by then
//                          \-> destroyed  the temporary directory is removed
//
// A process killed in between leaves the old destination or the new one, and perhaps a
// temporary directory, which the next Create for the same destination removes: its owner holds
// a lock on it while alive.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/train/rooted_file.h"

namespace penstock {

enum class Existing : uint8_t { kRefuse, kReplace };

class StagedDirectory {
 public:
  // AlreadyExists / OUTPUT_EXISTS if the destination exists and is not to be replaced. What may
  // be replaced is a directory without subdirectories, as an export makes it; anything else
  // (file, symbolic link, checkpoint, home directory) is FailedPrecondition / OUTPUT_EXISTS.
  // The parent must exist.
  static absl::StatusOr<StagedDirectory> Create(const std::string& destination, Existing existing);
  StagedDirectory(StagedDirectory&& other) noexcept;
  StagedDirectory& operator=(StagedDirectory&&) = delete;
  ~StagedDirectory();

  // Removes what killed processes left in `parent`, for whatever destination.
  static void RemoveAbandoned(const std::string& parent);

  // ResourceExhausted / DISK_INSUFFICIENT, with both numbers, if the file system has less than
  // `bytes` for this user. Others may take what it has meanwhile.
  absl::Status CheckRoom(int64_t bytes) const;

  int fd() const { return fd_.get(); }
  const std::string& destination() const { return destination_; }

  // Makes a subdirectory and returns it open; the descriptor stays this object's.
  absl::StatusOr<int> MakeSubdirectory(const std::string& name);

  // REQUIRES: all files were finished. A destination that is replaced is exchanged in one
  // rename, so no shard of the old set is left in the new one. After a failure the destination
  // is what it was.
  absl::Status Commit();

 private:
  StagedDirectory() = default;
  absl::Status MakeTemporary();
  absl::Status Place(bool replaces);
  void TakeBack(bool replaces);

  std::string destination_;
  std::string parent_;
  std::string name_;       // last component of destination_
  std::string temp_name_;  // in parent_; "" once committed or moved from
  Existing existing_ = Existing::kRefuse;
  FileDescriptor parent_fd_;
  FileDescriptor fd_;
  std::vector<FileDescriptor> subdirectories_;
};

// Makes a directory and the parents that it lacks, each on the device when this returns: a rename
// within it survives a power cut only if the directory does.
absl::Status MakeDirectories(const std::string& path);

}  // namespace penstock
