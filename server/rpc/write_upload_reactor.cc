#include "server/rpc/write_upload_reactor.h"

#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/crc32c.h"
#include "engine/base/status.h"
#include "server/access/method_table.h"
#include "server/jobs/request_checks.h"
#include "server/reasons.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/right.h"

namespace penstock::server {
namespace {

constexpr size_t kMaxPieceBytes = size_t{1} << 20;

absl::Status Gone() {
  return Error(absl::StatusCode::kCancelled, reason::kCallCancelled, "the client is gone");
}

absl::Status Invalid(const std::string& field, const std::string& message) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
               absl::StrCat(field, message), {{"field", field}});
}

}  // namespace

WriteUploadReactor::WriteUploadReactor(ServiceContext& services,
                                       grpc::CallbackServerContext* context,
                                       v1::WriteUploadResponse* response)
    : services_(services), call_(CurrentCall()), context_(context), response_(response) {}

void WriteUploadReactor::Begin() {
  if (absl::Status room = services_.transfer_streams.Begin(); !room.ok())
    return Finish(ToGrpcStatus(room));
  counted_ = true;
  StartRead(&message_);
}

void WriteUploadReactor::OnReadDone(bool ok) {
  if (!ok) return End();
  if (!upload_.empty()) return services_.transfers.Post([this] { TakePiece(); });
  services_.control.Post([this] {
    if (absl::Status found = FindFile(); !found.ok()) return Finish(ToGrpcStatus(found));
    services_.transfers.Post([this] { TakePiece(); });
  });
}

absl::Status WriteUploadReactor::FindFile() {
  PENSTOCK_RETURN_IF_ERROR(CheckUploadName(message_.name(), "name"));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::Upload upload, services_.uploads.Get(message_.name()));
  if (call_ != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(CheckOwner(call_->identity.caller, upload.name(), upload.owner()));
  }
  for (const v1::FileEntry& file : upload.files()) {
    if (file.path() != message_.path()) continue;
    upload_ = upload.name();
    file_ = file;
    if (message_.offset() == 0) hash_.emplace();
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kNotFound, reason::kFileNotFound,
               absl::StrCat(upload.name(),
                            " has announced no file of the path that is named in the "
                            "first message; GetUpload shows what it has"),
               {{"upload", upload.name()}, {"field", "path"}});
}

void WriteUploadReactor::TakePiece() {
  if (context_->IsCancelled()) return Finish(ToGrpcStatus(Gone()));
  if (absl::Status right = CheckRight(call_.get()); !right.ok()) {
    return Finish(ToGrpcStatus(right));
  }
  if (absl::Status stored = StorePiece(); !stored.ok()) return Finish(ToGrpcStatus(stored));
  StartRead(&message_);
}

absl::Status WriteUploadReactor::StorePiece() {
  if ((!message_.name().empty() && message_.name() != upload_) ||
      (!message_.path().empty() && message_.path() != file_.path())) {
    return Invalid("name",
                   " or path differ from those of the first message; one call sends one "
                   "file");
  }
  const std::string& data = message_.data();
  if (data.size() > kMaxPieceBytes) {
    return Invalid("data", absl::StrCat(" has ", data.size(), " bytes; at most ", kMaxPieceBytes,
                                        " are taken at once"));
  }
  if (Crc32c(data) != message_.crc32c()) {
    return Error(absl::StatusCode::kDataLoss, reason::kUploadCorrupt,
                 absl::StrCat("the piece at offset ", message_.offset(), " of ", file_.path(),
                              " has another crc32c than it came with; nothing of it is kept: send "
                              "it again"),
                 {{"file", file_.path()}, {"offset", absl::StrCat(message_.offset())}});
  }
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t size,
                            services_.upload_files.Append(upload_, file_, message_.offset(), data));
  response_->set_received_bytes(size);
  if (!hash_) return absl::OkStatus();
  hash_->Update(std::as_bytes(std::span(data)));
  if (size < file_.bytes()) return absl::OkStatus();
  const std::string found = HexOf(std::exchange(hash_, std::nullopt)->Finish());
  if (found == file_.sha256()) services_.upload_files.NoteVerified(upload_, file_.path());
  return absl::OkStatus();
}

void WriteUploadReactor::End() {
  if (context_->IsCancelled()) return Finish(ToGrpcStatus(Gone()));
  if (upload_.empty()) {
    return Finish(ToGrpcStatus(Invalid("name", " is missing: the call has no message")));
  }
  Finish(grpc::Status::OK);
}

void WriteUploadReactor::OnDone() {
  if (counted_) services_.transfer_streams.End();
  delete this;
}

}  // namespace penstock::server
