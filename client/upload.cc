#include "client/upload.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

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

constexpr size_t kPieceBytes = size_t{1} << 20;
// What the daemon hashes and brings to its disk in a second, at least.
constexpr int64_t kCheckedBytesPerSecond = int64_t{50} << 20;

absl::Status LocalError(const std::string& path, const std::string& what) {
  return Error(absl::StatusCode::kFailedPrecondition, reason::kIoError,
               absl::StrCat(path, ": ", what), {{"file", path}});
}

absl::Status CannotSend(const std::string& path, const std::string& why) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
               absl::StrCat(path, " cannot be sent: ", why), {{"path", path}});
}

// Reads a file in order; whoever changes it meanwhile is found out.
class Reader {
 public:
  explicit Reader(const LocalFile& file)
      : file_(file), fd_(open(file.source.c_str(), O_RDONLY | O_CLOEXEC)) {}
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() {
    if (fd_ >= 0) close(fd_);
  }

  // At most a piece from `offset` on; empty at the announced end.
  absl::Status Read(int64_t offset, std::string& piece) {
    if (fd_ < 0) return LocalError(file_.source, absl::StrCat("cannot open: ", strerror(errno)));
    const int64_t left = file_.entry.bytes() - offset;
    piece.resize(static_cast<size_t>(std::clamp<int64_t>(left, 0, kPieceBytes)));
    size_t have = 0;
    while (have < piece.size()) {
      const ssize_t got =
          pread(fd_, piece.data() + have, piece.size() - have, offset + static_cast<int64_t>(have));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return LocalError(file_.source, absl::StrCat("cannot read: ", strerror(errno)));
      if (got == 0) return LocalError(file_.source, "has become shorter while it was sent");
      have += static_cast<size_t>(got);
    }
    return absl::OkStatus();
  }

 private:
  const LocalFile& file_;
  const int fd_;
};

absl::Status AddFile(const fs::path& source, const std::string& path,
                     std::vector<LocalFile>& files) {
  if (!IsRelativePath(path)) {
    return CannotSend(source.string(), absl::StrCat("its name is not ", kRelativePathRule));
  }
  std::error_code error;
  LocalFile file{.source = source.string()};
  file.entry.set_path(path);
  file.entry.set_bytes(static_cast<int64_t>(fs::file_size(source, error)));
  if (error) return LocalError(file.source, error.message());
  files.push_back(std::move(file));
  return absl::OkStatus();
}

absl::Status AddDirectory(const fs::path& root, std::vector<LocalFile>& files) {
  std::error_code error;
  for (fs::recursive_directory_iterator it(root, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) {
      PENSTOCK_RETURN_IF_ERROR(AddFile(it->path(), it->path().lexically_relative(root), files));
    } else if (!it->is_directory(ignored)) {
      return CannotSend(it->path(), "it is neither a file nor a directory");
    } else if (it->is_symlink(ignored)) {
      return CannotSend(it->path(), "it is a link to a directory; copy the directory here");
    }
  }
  return error ? LocalError(root.string(), error.message()) : absl::OkStatus();
}

class Sender {
 public:
  Sender(RpcClient& client, const UploadArgs& args, TransferProgress& progress)
      : client_(client), args_(args), progress_(progress) {}

  absl::StatusOr<v1::Upload> Run() {
    PENSTOCK_ASSIGN_OR_RETURN(v1::Upload upload, Announce());
    for (const int64_t bytes : upload.received_bytes()) progress_.Skip(bytes);
    bool again = true;
    while (!upload.complete()) {
      PENSTOCK_RETURN_IF_ERROR(SendAll(upload));
      absl::StatusOr<v1::Upload> finished = Finish(upload);
      if (finished.ok()) return finished;
      const std::string reason = ReasonOf(finished.status());
      const bool lacks = reason == reason::kUploadCorrupt || reason == reason::kUploadIncomplete;
      if (!lacks || !std::exchange(again, false)) return finished.status();
      progress_.Announce(std::string(finished.status().message()));
      PENSTOCK_ASSIGN_OR_RETURN(upload, Get(upload.name()));
    }
    return upload;
  }

 private:
  template <typename Request, typename Response>
  using Method = grpc::Status (v1::TransferService::Stub::*)(grpc::ClientContext*, const Request&,
                                                             Response*);

  // Over as many tries as it takes: reads have no effect, the others carry a request_id.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(Method<Request, Response> method, const Request& request) {
    Patience patience;
    while (true) {
      absl::StatusOr<Response> response = client_.Call(client_.transfers(), method, request);
      if (response.ok() || !absl::IsUnavailable(response.status())) return response;
      if (!patience.Wait()) return response;
    }
  }

  absl::StatusOr<v1::Upload> Get(const std::string& name) {
    v1::GetUploadRequest request;
    request.set_name(name);
    PENSTOCK_ASSIGN_OR_RETURN(v1::GetUploadResponse response,
                              Call(&v1::TransferService::Stub::GetUpload, request));
    return std::move(*response.mutable_upload());
  }

  // The upload as it is now, new or begun before.
  absl::StatusOr<v1::Upload> Announce() {
    v1::CreateUploadRequest request;
    request.set_upload_id(args_.upload_id);
    for (const LocalFile& file : args_.files) *request.add_files() = file.entry;
    // The same for the same content, so that another program with it goes on where this one ended.
    request.set_request_id("upload-" + Sha256Of(request.SerializeAsString()));
    absl::StatusOr<v1::CreateUploadResponse> created =
        Call(&v1::TransferService::Stub::CreateUpload, request);
    if (ReasonOf(created.status()) == reason::kUploadExists) return Join(created.status());
    if (!created.ok()) return created.status();
    absl::StatusOr<v1::Upload> upload = Get(created->upload().name());
    if (!absl::IsNotFound(upload.status())) return upload;
    // A reply of long ago: that one has been deleted.
    request.set_request_id(NewRequestId());
    PENSTOCK_ASSIGN_OR_RETURN(created, Call(&v1::TransferService::Stub::CreateUpload, request));
    return std::move(*created->mutable_upload());
  }

  // Goes on with the one that has the id, if it is of the same files.
  absl::StatusOr<v1::Upload> Join(const absl::Status& exists) {
    PENSTOCK_ASSIGN_OR_RETURN(v1::Upload upload, Get("uploads/" + args_.upload_id));
    const auto same = [](const v1::FileEntry& theirs, const LocalFile& ours) {
      return theirs.path() == ours.entry.path() && theirs.bytes() == ours.entry.bytes() &&
             theirs.sha256() == ours.entry.sha256();
    };
    if (std::equal(upload.files().begin(), upload.files().end(), args_.files.begin(),
                   args_.files.end(), same)) {
      return upload;
    }
    return Annotate(exists, "other files were announced under this id");
  }

  absl::Status SendAll(v1::Upload& upload) {
    for (size_t i = 0; i < args_.files.size(); ++i) {
      Patience patience;
      int64_t received = upload.received_bytes(static_cast<int>(i));
      while (received < args_.files[i].entry.bytes()) {
        const grpc::Status sent = Send(upload.name(), args_.files[i], received);
        if (sent.ok()) break;
        const absl::Status failed = client_.ToStatus(sent);
        // Another stream's pieces, on their way when it broke, may have come after we asked.
        const bool go_on = IsBrokenConnection(sent) || ReasonOf(failed) == reason::kUploadOffset;
        if (local_error_.ok() && !go_on) return failed;
        PENSTOCK_RETURN_IF_ERROR(local_error_);
        progress_.Announce(absl::StrCat("lost the daemon, will go on: ", failed.message()));
        if (!patience.Wait()) return failed;
        PENSTOCK_ASSIGN_OR_RETURN(upload, Get(upload.name()));
        const int64_t now = upload.received_bytes(static_cast<int>(i));
        if (now > received) patience.Renew();
        progress_.Undo(sent_offset_ - now);
        received = now;
      }
    }
    return absl::OkStatus();
  }

  grpc::Status Send(const std::string& name, const LocalFile& file, int64_t offset) {
    grpc::ClientContext context;
    v1::WriteUploadResponse response;
    const auto writer = client_.transfers().WriteUpload(&context, &response);
    v1::WriteUploadRequest request;
    request.set_name(name);
    request.set_path(file.entry.path());
    Reader reader(file);
    sent_offset_ = offset;
    while (sent_offset_ < file.entry.bytes()) {
      std::string& piece = *request.mutable_data();
      local_error_ = reader.Read(sent_offset_, piece);
      if (!local_error_.ok()) {
        context.TryCancel();
        break;
      }
      request.set_offset(sent_offset_);
      request.set_crc32c(Crc32c(piece));
      const auto bytes = static_cast<int64_t>(piece.size());
      if (!writer->Write(request)) break;
      sent_offset_ += bytes;
      progress_.Move(bytes);
      request.clear_name();
      request.clear_path();
    }
    writer->WritesDone();
    return writer->Finish();
  }

  absl::StatusOr<v1::Upload> Finish(const v1::Upload& upload) {
    v1::FinishUploadRequest request;
    request.set_name(upload.name());
    request.set_request_id(NewRequestId());
    int64_t bytes = 0;
    for (const LocalFile& file : args_.files) bytes += file.entry.bytes();
    const absl::Duration usual = client_.timeout();
    client_.set_timeout(usual + absl::Seconds(bytes / kCheckedBytesPerSecond));
    absl::StatusOr<v1::FinishUploadResponse> response =
        Call(&v1::TransferService::Stub::FinishUpload, request);
    client_.set_timeout(usual);
    if (!response.ok()) return response.status();
    return std::move(*response->mutable_upload());
  }

  RpcClient& client_;
  const UploadArgs& args_;
  TransferProgress& progress_;
  int64_t sent_offset_ = 0;  // of the current file
  absl::Status local_error_;
};

}  // namespace

absl::StatusOr<std::vector<LocalFile>> FindLocalFiles(const std::string& path) {
  std::error_code error;
  const fs::path root = fs::canonical(path, error);
  if (error) return LocalError(path, error.message());
  std::vector<LocalFile> files;
  if (fs::is_directory(root, error)) {
    PENSTOCK_RETURN_IF_ERROR(AddDirectory(root, files));
  } else if (fs::is_regular_file(root, error)) {
    PENSTOCK_RETURN_IF_ERROR(AddFile(root, fs::path(path).filename(), files));
  }
  if (files.empty()) return CannotSend(path, "there is no file");
  std::sort(files.begin(), files.end(),
            [](const LocalFile& a, const LocalFile& b) { return a.entry.path() < b.entry.path(); });
  return files;
}

absl::Status HashFiles(std::vector<LocalFile>& files, TransferProgress& progress) {
  std::string piece;
  for (LocalFile& file : files) {
    Reader reader(file);
    Sha256 hash;
    for (int64_t offset = 0; offset < file.entry.bytes();
         offset += static_cast<int64_t>(piece.size())) {
      PENSTOCK_RETURN_IF_ERROR(reader.Read(offset, piece));
      hash.Update(std::as_bytes(std::span(piece)));
      progress.Move(static_cast<int64_t>(piece.size()));
    }
    file.entry.set_sha256(HexOf(hash.Finish()));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Upload> SendUpload(RpcClient& client, const UploadArgs& args,
                                      TransferProgress& progress) {
  return Sender(client, args, progress).Run();
}

}  // namespace penstock::client
