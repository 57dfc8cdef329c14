#include "client/download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/patience.h"
#include "engine/base/crc32c.h"
#include "engine/base/relative_path.h"
#include "engine/base/status.h"
#include "engine/provenance/sha256.h"
#include "server/reasons.h"

namespace penstock::client {
namespace fs = std::filesystem;
namespace {

absl::Status LocalError(const std::string& path, const char* what, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  return Error(full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kFailedPrecondition,
               full ? reason::kDiskInsufficient : reason::kIoError,
               absl::StrCat(path, ": ", what, ": ", std::strerror(error),
                            full ? "; what was fetched stays: free space and call again" : ""),
               {{"file", path}});
}

absl::Status SyncPath(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return LocalError(path, "cannot open", errno);
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  return error == 0 ? absl::OkStatus() : LocalError(path, "cannot fsync", error);
}

// A file that grows at its end, with the hash of what it holds.
class PartialFile {
 public:
  explicit PartialFile(std::string path) : path_(std::move(path)) {}
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  ~PartialFile() {
    if (fd_ >= 0) close(fd_);
  }

  // Keeps and hashes what is there, unless it is more than `most`.
  absl::Status Open(int64_t most) {
    fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd_ < 0) return LocalError(path_, "cannot open", errno);
    struct stat info {};
    if (fstat(fd_, &info) != 0) return LocalError(path_, "cannot examine", errno);
    if (info.st_size > most) return Clear();
    std::string piece(size_t{1} << 20, '\0');
    while (true) {
      const ssize_t got = pread(fd_, piece.data(), piece.size(), size_);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return LocalError(path_, "cannot read", errno);
      if (got == 0) return absl::OkStatus();
      hash_.Update(std::as_bytes(std::span(piece).first(static_cast<size_t>(got))));
      size_ += got;
    }
  }

  absl::Status Append(std::string_view data) {
    hash_.Update(std::as_bytes(std::span(data)));
    while (!data.empty()) {
      const ssize_t written = pwrite(fd_, data.data(), data.size(), size_);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return LocalError(path_, "cannot write", errno);
      size_ += written;
      data.remove_prefix(static_cast<size_t>(written));
    }
    return absl::OkStatus();
  }

  absl::Status Clear() {
    if (ftruncate(fd_, 0) != 0) return LocalError(path_, "cannot be emptied", errno);
    size_ = 0;
    hash_ = Sha256();
    return absl::OkStatus();
  }

  // Of all of it, which is on the disk then. Once; after it only Clear().
  absl::StatusOr<std::string> Finish() {
    if (fsync(fd_) != 0) return LocalError(path_, "cannot fsync", errno);
    return HexOf(hash_.Finish());
  }

  int64_t size() const { return size_; }

 private:
  const std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
  Sha256 hash_;
};

class Fetcher {
 public:
  Fetcher(RpcClient& client, const std::string& parent, TransferProgress& progress)
      : client_(client), parent_(parent), progress_(progress) {}

  // Fills in entry.sha256.
  absl::Status Fetch(const std::string& directory, v1::FileEntry& entry) {
    const std::string path = absl::StrCat(directory, "/", entry.path());
    std::error_code error;
    fs::create_directories(fs::path(path).parent_path(), error);
    if (error) return LocalError(path, "cannot create its directory", error.value());
    PartialFile file(path);
    PENSTOCK_RETURN_IF_ERROR(file.Open(entry.bytes()));
    progress_.Skip(file.size());
    for (bool again = true;; again = false) {
      PENSTOCK_ASSIGN_OR_RETURN(const std::string wanted, Complete(file, entry));
      PENSTOCK_ASSIGN_OR_RETURN(const std::string found, file.Finish());
      if (found == wanted) {
        entry.set_sha256(found);
        return absl::OkStatus();
      }
      // What was there before may be of something else; from the beginning, once.
      progress_.Undo(file.size());
      PENSTOCK_RETURN_IF_ERROR(file.Clear());
      if (again) continue;
      return Error(absl::StatusCode::kDataLoss, reason::kUploadCorrupt,
                   absl::StrCat(entry.path(), " of ", parent_, " arrived with the SHA-256 ", found,
                                " and should have ", wanted),
                   {{"file", entry.path()}, {"found", found}, {"expected", wanted}});
    }
  }

 private:
  // Until the file has its size; gives the hash that it should have.
  absl::StatusOr<std::string> Complete(PartialFile& file, const v1::FileEntry& entry) {
    if (file.size() == entry.bytes() && !entry.sha256().empty()) return entry.sha256();
    Patience patience;
    while (true) {
      const int64_t before = file.size();
      std::string hash;
      PENSTOCK_ASSIGN_OR_RETURN(const Broken broken, Read(file, entry, hash));
      if (broken.why.ok()) return entry.sha256().empty() ? hash : entry.sha256();
      progress_.Announce(absl::StrCat("lost the daemon, will go on: ", broken.why.message()));
      if (file.size() > before) patience.Renew();
      if (!patience.Wait()) return broken.why;
    }
  }

  // How a stream ended of which another may read the rest; OK if there is none.
  struct Broken {
    absl::Status why;
  };
  absl::StatusOr<Broken> Read(PartialFile& file, const v1::FileEntry& entry, std::string& hash) {
    grpc::ClientContext context;
    v1::ReadFileRequest request;
    request.set_parent(parent_);
    request.set_path(entry.path());
    request.set_offset(file.size());
    const auto reader = client_.transfers().ReadFile(&context, request);
    v1::ReadFileResponse piece;
    absl::Status failed, damaged;
    while (failed.ok() && damaged.ok() && reader->Read(&piece)) {
      const auto bytes = static_cast<int64_t>(piece.data().size());
      if (!piece.sha256().empty()) {
        hash = piece.sha256();
      } else if (Crc32c(piece.data()) != piece.crc32c()) {
        damaged = absl::DataLossError(absl::StrCat("a piece of ", entry.path(), " was damaged"));
      } else if (bytes > entry.bytes() - file.size()) {
        failed = Error(absl::StatusCode::kDataLoss, reason::kUploadCorrupt,
                       absl::StrCat(entry.path(), " of ", parent_, " goes on after its ",
                                    entry.bytes(), " bytes; it was changed meanwhile"),
                       {{"file", entry.path()}});
      } else {
        failed = file.Append(piece.data());
        progress_.Move(bytes);
      }
    }
    if (!failed.ok() || !damaged.ok()) context.TryCancel();
    const grpc::Status status = reader->Finish();
    PENSTOCK_RETURN_IF_ERROR(failed);
    if (!damaged.ok()) return Broken{damaged};
    if (status.ok() && !hash.empty() && file.size() == entry.bytes()) return Broken{};
    if (status.ok()) return Broken{absl::UnavailableError("the stream closed without its end")};
    if (IsBrokenConnection(status)) return Broken{client_.ToStatus(status)};
    return client_.ToStatus(status);
  }

  RpcClient& client_;
  const std::string& parent_;
  TransferProgress& progress_;
};

// Files that belong to something else: an older download of another thing to the same place.
absl::Status RemoveOthers(const std::string& directory, const v1::ListFilesResponse& files) {
  std::set<std::string> known;
  for (const v1::FileEntry& file : files.files()) {
    known.insert(absl::StrCat(directory, "/", file.path()));
  }
  std::vector<std::string> others;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    const bool is_directory = it->is_directory(ignored) && !it->is_symlink(ignored);
    if (!is_directory && !known.contains(it->path())) others.push_back(it->path());
  }
  if (error) return LocalError(directory, "cannot list", error.value());
  for (const std::string& path : others) {
    if (unlink(path.c_str()) != 0) return LocalError(path, "cannot remove", errno);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::ListFilesResponse> ListSource(RpcClient& client, const std::string& parent) {
  v1::ListFilesRequest request;
  request.set_parent(parent);
  Patience patience;
  absl::StatusOr<v1::ListFilesResponse> files;
  do {
    files = client.Call(client.transfers(), &v1::TransferService::Stub::ListFiles, request);
  } while (absl::IsUnavailable(files.status()) && patience.Wait());
  if (!files.ok()) return files.status();
  for (const v1::FileEntry& file : files->files()) {
    if (IsRelativePath(file.path()) && file.bytes() >= 0) continue;
    return Error(absl::StatusCode::kInternal, reason::kInternal,
                 absl::StrCat("the daemon names a file of ", parent, " that is not ",
                              kRelativePathRule, "; nothing is written"));
  }
  return files;
}

absl::StatusOr<v1::ListFilesResponse> Download(RpcClient& client, const DownloadArgs& args,
                                               TransferProgress& progress) {
  fs::path target = fs::path(args.directory).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();  // "out/"
  std::error_code error;
  if (fs::exists(fs::symlink_status(target, error))) {
    return Error(absl::StatusCode::kAlreadyExists, reason::kOutputExists,
                 absl::StrCat(args.directory, " exists; choose another directory, or remove it"),
                 {{"path", args.directory}});
  }
  const std::string partial =
      (target.parent_path() / absl::StrCat(".", target.filename().string(), ".penstock-partial"))
          .string();
  fs::create_directories(partial, error);
  if (error) return LocalError(partial, "cannot create", error.value());
  PENSTOCK_RETURN_IF_ERROR(RemoveOthers(partial, args.files));
  v1::ListFilesResponse fetched = args.files;
  Fetcher fetcher(client, args.parent, progress);
  std::set<std::string> directories{partial};
  for (v1::FileEntry& entry : *fetched.mutable_files()) {
    PENSTOCK_RETURN_IF_ERROR(fetcher.Fetch(partial, entry));
    directories.insert(fs::path(absl::StrCat(partial, "/", entry.path())).parent_path());
  }
  for (const std::string& directory : directories) PENSTOCK_RETURN_IF_ERROR(SyncPath(directory));
  if (rename(partial.c_str(), target.c_str()) != 0) {
    return LocalError(partial, "cannot be renamed into place", errno);
  }
  PENSTOCK_RETURN_IF_ERROR(SyncPath(target.parent_path().empty() ? "." : target.parent_path()));
  return fetched;
}

}  // namespace penstock::client
