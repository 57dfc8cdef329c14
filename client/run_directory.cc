#include "client/run_directory.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

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

void RunDirectory::Keep() {
  if (std::exchange(kind_, Kind::kGiven) == Kind::kTemporary) {
    PrintTalk(absl::StrCat("log and checkpoints are kept; to go on: penstock run --state-dir ",
                           path_, " with the same job file\n"));
  }
}

}  // namespace penstock::client
