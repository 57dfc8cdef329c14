#include "engine/train/checkpoint_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/status.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr char kHeld[] = ".held-";
constexpr char kLeaving[] = ".leaving-";
constexpr char kRemoved[] = ".removed-";
constexpr char kSuperseded[] = ".superseded-";

absl::Status IoFailure(const std::string& what, const std::string& path, int error) {
  return Error(absl::StatusCode::kUnavailable, reason::kIoError,
               absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(error)),
               {{"file", path}});
}

std::optional<int64_t> ParseStep(absl::string_view text) {
  int64_t step = 0;
  if (!absl::SimpleAtoi(text, &step) || step <= 0 || absl::StrCat(step) != text) {
    return std::nullopt;
  }
  return step;
}

// Names in the directory; none if there is no such directory.
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator it(directory, error);
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory) {
    return names;
  }
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return IoFailure("list the checkpoints in", directory, error.value());
  return names;
}

std::string Beside(const std::string& directory, const char* prefix, int64_t step) {
  return absl::StrCat(directory, "/", prefix, step);
}

std::string NotePath(const std::string& directory, int64_t step, const std::string& holder) {
  return absl::StrCat(directory, "/", kHeld, step, "-", holder);
}

absl::Status Gone(const std::string& directory, int64_t step) {
  return Error(absl::StatusCode::kNotFound, reason::kCheckpointNotFound,
               absl::StrCat(CheckpointPath(directory, step),
                            " is not there any more; choose another checkpoint"),
               {{"step", absl::StrCat(step)}});
}

absl::Status SyncDirectory(const std::string& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return IoFailure("open", directory, errno);
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  return error == 0 ? absl::OkStatus() : IoFailure("flush", directory, error);
}

}  // namespace

std::string CheckpointPath(const std::string& directory, int64_t step) {
  return absl::StrCat(directory, "/", step);
}

absl::StatusOr<std::set<int64_t>> ListCheckpointSteps(const std::string& directory) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(directory));
  std::set<int64_t> steps;
  for (const std::string& name : names) {
    if (const auto step = ParseStep(name)) steps.insert(*step);
  }
  return steps;
}

absl::StatusOr<CheckpointHolds> ListCheckpointHolds(const std::string& directory) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(directory));
  CheckpointHolds holds;
  for (const std::string& name : names) {
    absl::string_view rest = name;
    if (!absl::ConsumePrefix(&rest, kHeld)) continue;
    const size_t dash = rest.find('-');
    if (dash == absl::string_view::npos) continue;
    if (const auto step = ParseStep(rest.substr(0, dash))) {
      holds[*step].insert(std::string(rest.substr(dash + 1)));
    }
  }
  return holds;
}

absl::Status HoldCheckpoint(const std::string& directory, int64_t step, const std::string& holder) {
  const std::string path = CheckpointPath(directory, step);
  // Looked at first as well: no note for a step that never was.
  if (access(path.c_str(), F_OK) != 0) return Gone(directory, step);
  const std::string note = NotePath(directory, step, holder);
  const int fd = open(note.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return IoFailure("create", note, errno);
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  absl::Status held = error == 0 ? SyncDirectory(directory) : IoFailure("flush", note, error);
  if (held.ok() && access(path.c_str(), F_OK) != 0) held = Gone(directory, step);
  if (!held.ok()) unlink(note.c_str());
  return held;
}

absl::Status ReleaseCheckpoint(const std::string& directory, int64_t step,
                               const std::string& holder) {
  const std::string note = NotePath(directory, step, holder);
  if (unlink(note.c_str()) == 0) return SyncDirectory(directory);
  return errno == ENOENT ? absl::OkStatus() : IoFailure("remove", note, errno);
}

absl::StatusOr<std::optional<std::string>> TakeOutCheckpoint(const std::string& directory,
                                                             int64_t step, Leaving where) {
  const std::string path = CheckpointPath(directory, step);
  const std::string leaving = Beside(directory, kLeaving, step);
  const std::string out =
      Beside(directory, where == Leaving::kRemoved ? kRemoved : kSuperseded, step);
  if (rename(path.c_str(), leaving.c_str()) != 0) {
    if (errno == ENOENT) return std::nullopt;
    return IoFailure("take out", path, errno);
  }
  const absl::StatusOr<CheckpointHolds> holds = ListCheckpointHolds(directory);
  if (!holds.ok() || holds->contains(step)) {
    if (rename(leaving.c_str(), path.c_str()) != 0) return IoFailure("put back", path, errno);
    if (!holds.ok()) return holds.status();
    return std::nullopt;
  }
  std::error_code ignored;
  fs::remove_all(out, ignored);  // of an earlier one of this step, if it could not be deleted
  if (rename(leaving.c_str(), out.c_str()) != 0) return IoFailure("take out", path, errno);
  PENSTOCK_RETURN_IF_ERROR(SyncDirectory(directory));
  return out;
}

void DeleteSuperseded(const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names = NamesIn(directory);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    std::error_code ignored;
    if (absl::StartsWith(name, kSuperseded)) {
      fs::remove_all(absl::StrCat(directory, "/", name), ignored);
    }
  }
}

void TidyCheckpointDirectory(const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names = NamesIn(directory);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const std::string path = absl::StrCat(directory, "/", name);
    absl::string_view rest = name;
    std::error_code ignored;
    if (absl::ConsumePrefix(&rest, kLeaving) && ParseStep(rest)) {
      const std::string back = absl::StrCat(directory, "/", rest);
      if (fs::exists(back, ignored)) {
        fs::remove_all(path, ignored);
      } else {
        fs::rename(path, back, ignored);
      }
    } else if (absl::StartsWith(name, kRemoved)) {
      fs::remove_all(path, ignored);
    }
  }
}

}  // namespace penstock
