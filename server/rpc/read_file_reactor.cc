#include "server/rpc/read_file_reactor.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/crc32c.h"
#include "engine/base/relative_path.h"
#include "engine/base/status.h"
#include "server/reasons.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/right.h"

namespace penstock::server {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;
// What is hashed at a time of what the client has already.
constexpr int64_t kSkipBytes = int64_t{8} << 20;

absl::Status Gone() {
  return Error(absl::StatusCode::kCancelled, reason::kCallCancelled, "the client is gone");
}

absl::Status NoFile(const v1::ReadFileRequest& request) {
  return Error(absl::StatusCode::kNotFound, reason::kFileNotFound,
               absl::StrCat(request.parent(),
                            " has no file of that path; ListFiles shows what it "
                            "has"),
               {{"parent", request.parent()}, {"path", request.path()}});
}

}  // namespace

ReadFileReactor::ReadFileReactor(ServiceContext& services, grpc::CallbackServerContext* context,
                                 const v1::ReadFileRequest& request)
    : services_(services), call_(CurrentCall()), context_(context), request_(request) {}

void ReadFileReactor::Begin() {
  if (absl::Status room = services_.transfer_streams.Begin(); !room.ok())
    return Finish(ToGrpcStatus(room));
  counted_ = true;
  if (!IsRelativePath(request_.path())) {
    return Finish(ToGrpcStatus(
        Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
              absl::StrCat("path is no path beneath a directory; expected ", kRelativePathRule),
              {{"field", "path"}, {"expected", kRelativePathRule}})));
  }
  services_.control.Post([this] {
    if (context_->IsCancelled()) return Finish(ToGrpcStatus(Gone()));
    absl::StatusOr<FileSource> source = services_.sources.Open(request_.parent());
    held_ = source.ok();
    services_.transfers.Post([this, source = std::move(source)] { Open(source); });
  });
}

void ReadFileReactor::Open(const absl::StatusOr<FileSource>& source) {
  const absl::Status opened = source.ok() ? OpenFile(*source) : source.status();
  if (!opened.ok()) return Finish(ToGrpcStatus(opened));
  recorded_ = RecordedHash(*source);
  // With a hash on record nobody needs one of the bytes that the client has.
  if (recorded_) offset_ = request_.offset();
  Next();
}

absl::Status ReadFileReactor::OpenFile(const FileSource& source) {
  std::string directory = source.directory;
  if (source.check_roots) {
    PENSTOCK_ASSIGN_OR_RETURN(directory, CheckUnderRoots(directory, services_.allowed_roots));
  }
  const absl::StatusOr<RootedDirectory> root = RootedDirectory::Open(directory);
  if (absl::IsNotFound(root.status())) return NoFile(request_);
  if (!root.ok()) return root.status();
  absl::StatusOr<ReadableFile> file = root->OpenFile(request_.path());
  if (absl::IsNotFound(file.status())) return NoFile(request_);
  if (!file.ok()) return file.status();
  file_ = *std::move(file);
  if (request_.offset() >= 0 && request_.offset() <= file_->size()) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
               absl::StrCat("offset is ", request_.offset(), "; expected 0 to the file's ",
                            file_->size(), " bytes"),
               {{"field", "offset"}, {"found", absl::StrCat(request_.offset())}});
}

std::optional<std::string> ReadFileReactor::RecordedHash(const FileSource& source) const {
  if (!source.upload) return std::nullopt;
  for (const v1::FileEntry& file : source.upload->files()) {
    if (file.path() == request_.path()) return file.sha256();
  }
  return std::nullopt;
}

void ReadFileReactor::Next() {
  if (context_->IsCancelled()) return Finish(ToGrpcStatus(Gone()));
  if (absl::Status right = CheckRight(call_.get()); !right.ok()) {
    return Finish(ToGrpcStatus(right));
  }
  message_.Clear();
  if (offset_ == file_->size()) {
    message_.set_sha256(recorded_ ? *recorded_ : HexOf(hash_.Finish()));
    return StartWriteAndFinish(&message_, grpc::WriteOptions(), grpc::Status::OK);
  }
  const bool skipping = offset_ < request_.offset();
  const int64_t bytes = skipping ? std::min(kSkipBytes, request_.offset() - offset_)
                                 : std::min(kPieceBytes, file_->size() - offset_);
  std::string& data = *message_.mutable_data();
  data.resize(static_cast<size_t>(bytes));
  const absl::Status read = file_->ReadAt(offset_, std::as_writable_bytes(std::span(data)));
  if (!read.ok()) return Finish(ToGrpcStatus(read));
  if (!recorded_) hash_.Update(std::as_bytes(std::span(data)));
  offset_ += bytes;
  if (skipping) return services_.transfers.Post([this] { Next(); });
  message_.set_crc32c(Crc32c(data));
  StartWrite(&message_);
}

void ReadFileReactor::OnWriteDone(bool ok) {
  if (!ok) return Finish(ToGrpcStatus(Gone()));
  services_.transfers.Post([this] { Next(); });
}

void ReadFileReactor::OnDone() {
  if (held_) {
    services_.control.Post(
        [&sources = services_.sources, parent = request_.parent()] { sources.Close(parent); });
  }
  if (counted_) services_.transfer_streams.End();
  delete this;
}

}  // namespace penstock::server
