#include "server/rpc/transfer_service.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/relative_path.h"
#include "engine/base/status.h"
#include "engine/train/rooted_file.h"
#include "server/jobs/request_checks.h"
#include "server/reasons.h"
#include "server/rpc/read_file_reactor.h"
#include "server/rpc/unary_call.h"
#include "server/rpc/write_upload_reactor.h"

namespace penstock::server {
namespace fs = std::filesystem;
namespace {

constexpr int kMaxListedFiles = 10'000;

absl::Status CheckCreate(const v1::CreateUploadRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  if (!request.upload_id().empty()) {
    PENSTOCK_RETURN_IF_ERROR(CheckJobId(request.upload_id(), "upload_id"));
  }
  return CheckUploadFiles(request).status();
}

absl::Status CheckNamed(const std::string& name, const std::string& request_id) {
  PENSTOCK_RETURN_IF_ERROR(CheckRequestId(request_id));
  return CheckUploadName(name, "name");
}

void SortByPath(v1::ListFilesResponse& response) {
  std::sort(response.mutable_files()->begin(), response.mutable_files()->end(),
            [](const v1::FileEntry& a, const v1::FileEntry& b) { return a.path() < b.path(); });
}

absl::Status NoDirectory(const std::string& parent) {
  return Error(absl::StatusCode::kNotFound, reason::kFileNotFound,
               absl::StrCat("the directory of ", parent, " is gone"), {{"parent", parent}});
}

// The regular files beneath it, by path. Links to directories are not followed, and a link to a
// file counts if ReadFile would read it.
absl::StatusOr<v1::ListFilesResponse> ListDirectory(const std::string& path,
                                                    const std::string& parent) {
  const absl::StatusOr<RootedDirectory> directory = RootedDirectory::Open(path);
  if (absl::IsNotFound(directory.status())) return NoDirectory(parent);
  if (!directory.ok()) return directory.status();
  v1::ListFilesResponse response;
  std::error_code error;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->is_directory(ignored)) continue;
    const std::string name = it->path().lexically_relative(path).string();
    if (!IsRelativePath(name)) continue;
    const absl::StatusOr<ReadableFile> file = directory->OpenFile(name);
    // No regular file, or gone meanwhile.
    if (absl::IsPermissionDenied(file.status()) || absl::IsNotFound(file.status())) continue;
    if (!file.ok()) return file.status();
    if (response.files_size() == kMaxListedFiles) {
      return Error(absl::StatusCode::kFailedPrecondition, reason::kIoError,
                   absl::StrCat(path, " holds more than ", kMaxListedFiles, " files"),
                   {{"file", path}});
    }
    v1::FileEntry& entry = *response.add_files();
    entry.set_path(name);
    entry.set_bytes(file->size());
  }
  if (error) {
    return Error(absl::StatusCode::kUnavailable, reason::kIoError,
                 absl::StrCat(path, ": cannot list: ", error.message()), {{"file", path}});
  }
  SortByPath(response);
  return response;
}

absl::StatusOr<v1::ListFilesResponse> ListSource(const FileSource& source,
                                                 const std::string& parent,
                                                 const std::vector<std::string>& allowed_roots) {
  if (source.upload) {
    v1::ListFilesResponse response;
    *response.mutable_files() = source.upload->files();
    SortByPath(response);
    return response;
  }
  std::string directory = source.directory;
  if (source.check_roots) {
    PENSTOCK_ASSIGN_OR_RETURN(directory, CheckUnderRoots(directory, allowed_roots));
  }
  return ListDirectory(directory, parent);
}

// control (was this call made before?) -> transfers (check it step by step, move it into its place)
// -> control (complete)
class FinishCall : public std::enable_shared_from_this<FinishCall> {
 public:
  FinishCall(ServiceContext& services, UnaryCall<v1::FinishUploadResponse> call,
             const v1::FinishUploadRequest* request)
      : services_(services), call_(call), request_(request) {}

  void Begin() {
    services_.control.Post([self = shared_from_this()] {
      if (self->call_.FinishedIfAbandoned()) return;
      auto replay = self->services_.uploads.BeginFinish(*self->request_);
      if (!replay.ok()) return self->call_.Finish(replay.status());
      if (replay->has_value()) return self->call_.Finish(**std::move(replay));
      absl::StatusOr<v1::Upload> upload = self->services_.uploads.Get(self->request_->name());
      if (!upload.ok()) return self->call_.Finish(upload.status());
      self->check_ =
          std::make_unique<UploadCheck>(self->services_.upload_files, *std::move(upload));
      self->Step();
    });
  }

 private:
  void Step() {
    services_.transfers.Post([self = shared_from_this()] {
      if (self->call_.FinishedIfAbandoned()) return;
      const absl::StatusOr<bool> done = self->check_->Step();
      if (!done.ok()) return self->call_.Finish(done.status());
      *done ? self->Complete() : self->Step();
    });
  }

  // Not given up any more: the files are where they belong.
  void Complete() {
    services_.control.Post([self = shared_from_this()] {
      self->call_.Finish(self->services_.uploads.SetComplete(*self->request_));
    });
  }

  ServiceContext& services_;
  const UnaryCall<v1::FinishUploadResponse> call_;
  const v1::FinishUploadRequest* const request_;
  std::unique_ptr<UploadCheck> check_;
};

}  // namespace

// control (where?) -> transfers (list)
grpc::ServerUnaryReactor* TransferServiceImpl::ListFiles(grpc::CallbackServerContext* context,
                                                         const v1::ListFilesRequest* request,
                                                         v1::ListFilesResponse* response) {
  const UnaryCall<v1::ListFilesResponse> call(context, response);
  services_.control.Post([this, call, request] {
    if (call.FinishedIfAbandoned()) return;
    absl::StatusOr<FileSource> source = services_.sources.Find(request->parent());
    if (!source.ok()) return call.Finish(source.status());
    services_.transfers.Post([this, call, request, source = *std::move(source)] {
      if (call.FinishedIfAbandoned()) return;
      call.Finish(ListSource(source, request->parent(), services_.allowed_roots));
    });
  });
  return call.reactor();
}

grpc::ServerWriteReactor<v1::ReadFileResponse>* TransferServiceImpl::ReadFile(
    grpc::CallbackServerContext* context, const v1::ReadFileRequest* request) {
  auto* const reactor = new ReadFileReactor(services_, context, *request);
  reactor->Begin();
  return reactor;
}

// control (was this call made before?) -> transfers (what have others yet to send?) -> control
grpc::ServerUnaryReactor* TransferServiceImpl::CreateUpload(grpc::CallbackServerContext* context,
                                                            const v1::CreateUploadRequest* request,
                                                            v1::CreateUploadResponse* response) {
  const UnaryCall<v1::CreateUploadResponse> call(context, response);
  if (absl::Status form = CheckCreate(*request); !form.ok()) {
    call.Finish(form);
    return call.reactor();
  }
  services_.control.Post([this, call, request] {
    if (call.FinishedIfAbandoned()) return;
    absl::StatusOr<UploadManager::Begun> begun = services_.uploads.BeginCreate(*request);
    if (!begun.ok()) return call.Finish(begun.status());
    if (begun->reply) return call.Finish(*std::move(begun->reply));
    services_.transfers.Post([this, call, request, incoming = std::move(begun->incoming)] {
      if (call.FinishedIfAbandoned()) return;
      int64_t outstanding = 0;
      for (const auto& [name, bytes] : incoming) {
        outstanding += bytes - std::min(bytes, services_.upload_files.ReceivedBytes(name));
      }
      services_.control.Post([this, call, request, outstanding] {
        if (call.FinishedIfAbandoned()) return;
        call.Finish(services_.uploads.FinishCreate(*request, outstanding));
      });
    });
  });
  return call.reactor();
}

grpc::ServerReadReactor<v1::WriteUploadRequest>* TransferServiceImpl::WriteUpload(
    grpc::CallbackServerContext* context, v1::WriteUploadResponse* response) {
  auto* const reactor = new WriteUploadReactor(services_, context, response);
  reactor->Begin();
  return reactor;
}

// control (what was announced?) -> transfers (what is there?)
grpc::ServerUnaryReactor* TransferServiceImpl::GetUpload(grpc::CallbackServerContext* context,
                                                         const v1::GetUploadRequest* request,
                                                         v1::GetUploadResponse* response) {
  const UnaryCall<v1::GetUploadResponse> call(context, response);
  if (absl::Status form = CheckUploadName(request->name(), "name"); !form.ok()) {
    call.Finish(form);
    return call.reactor();
  }
  services_.control.Post([this, call, request] {
    if (call.FinishedIfAbandoned()) return;
    absl::StatusOr<v1::Upload> upload = services_.uploads.Get(request->name());
    if (!upload.ok()) return call.Finish(upload.status());
    services_.transfers.Post([this, call, upload = *std::move(upload)]() mutable {
      if (call.FinishedIfAbandoned()) return;
      const auto received = services_.upload_files.Received(upload);
      if (!received.ok()) return call.Finish(received.status());
      v1::GetUploadResponse got;
      upload.mutable_received_bytes()->Add(received->begin(), received->end());
      *got.mutable_upload() = std::move(upload);
      call.Finish(std::move(got));
    });
  });
  return call.reactor();
}

grpc::ServerUnaryReactor* TransferServiceImpl::ListUploads(grpc::CallbackServerContext* context,
                                                           const v1::ListUploadsRequest* request,
                                                           v1::ListUploadsResponse* response) {
  return Answer<v1::ListUploadsResponse>(
      context, response, absl::OkStatus(), services_.control,
      [this, request] { return services_.uploads.List(*request); });
}

grpc::ServerUnaryReactor* TransferServiceImpl::FinishUpload(grpc::CallbackServerContext* context,
                                                            const v1::FinishUploadRequest* request,
                                                            v1::FinishUploadResponse* response) {
  const UnaryCall<v1::FinishUploadResponse> call(context, response);
  if (absl::Status form = CheckNamed(request->name(), request->request_id()); !form.ok()) {
    call.Finish(form);
  } else {
    std::make_shared<FinishCall>(services_, call, request)->Begin();
  }
  return call.reactor();
}

grpc::ServerUnaryReactor* TransferServiceImpl::DeleteUpload(grpc::CallbackServerContext* context,
                                                            const v1::DeleteUploadRequest* request,
                                                            v1::DeleteUploadResponse* response) {
  return Answer<v1::DeleteUploadResponse>(
      context, response, CheckNamed(request->name(), request->request_id()), services_.control,
      [this, request] {
        auto deleted = services_.uploads.Delete(*request);
        if (deleted.ok()) {
          services_.transfers.Post(
              [&files = services_.upload_files, name = request->name()] { files.Forget(name); });
          services_.validation.Post([&directory = services_.directory] { directory.EmptyTrash(); });
        }
        return deleted;
      });
}

}  // namespace penstock::server
