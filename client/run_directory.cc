#include "client/run_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/endpoint.h"
#include "client/job_file.h"
#include "client/output.h"
#include "engine/base/status.h"

namespace penstock::client {
namespace {

absl::Status Failure(const std::string& path, const std::string& what) {
  return Error(absl::StatusCode::kUnavailable, reason::kIoError,
               absl::StrCat("--state-dir ", path, ": ", what));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunDirectory>> RunDirectory::Create(const std::string& wanted) {
  if (!wanted.empty()) {
    const std::filesystem::path path = AbsolutePath(wanted);
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    if (error) return Failure(wanted, error.message());
    // The daemon takes no directory that others can look into.
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
      return Failure(wanted, std::strerror(errno));
    }
    return std::unique_ptr<RunDirectory>(new RunDirectory(path.string(), Kind::kGiven));
  }
  // Short: the path of a unix socket lies beneath and has 107 bytes at most.
  std::string pattern =
      absl::StrCat(GetProcessEnvironment("TMPDIR").value_or("/tmp"), "/penstock-run-XXXXXX");
  if (mkdtemp(pattern.data()) == nullptr) return Failure(pattern, "cannot be created");
  return std::unique_ptr<RunDirectory>(new RunDirectory(pattern, Kind::kTemporary));
}

RunDirectory::RunDirectory(std::string path, Kind kind) : path_(std::move(path)), kind_(kind) {}

RunDirectory::~RunDirectory() {
  std::error_code ignored;
  if (kind_ == Kind::kTemporary) std::filesystem::remove_all(path_, ignored);
}

absl::Status RunDirectory::CheckFree() const {
  const std::string lock = absl::StrCat(path_, "/penstockd.lock");
  const int fd = open(lock.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return absl::OkStatus();  // The daemon says what is wrong with it, if anything is.
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  std::string holder(500, '\0');
  const bool held = fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
  const ssize_t got = held ? pread(fd, holder.data(), holder.size(), 0) : 0;
  close(fd);
  if (!held) return absl::OkStatus();
  holder.resize(got > 0 ? static_cast<size_t>(got) : 0);
  absl::StripAsciiWhitespace(&holder);
  return Error(absl::StatusCode::kFailedPrecondition, reason::kLockHeld,
               absl::StrCat("a penstockd has ", path_, " (", holder,
                            "): another `penstock run` is at work there, or one is about to end. "
                            "Wait for it, or choose another --state-dir"),
               {{"directory", path_}, {"holder", holder}});
}

void RunDirectory::Keep() {
  if (std::exchange(kind_, Kind::kGiven) == Kind::kTemporary) {
    PrintTalk(absl::StrCat("log and checkpoints are kept; to go on: penstock run --state-dir ",
                           path_, " with the same job file\n"));
  }
}

}  // namespace penstock::client
