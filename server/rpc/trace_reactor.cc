#include "server/rpc/trace_reactor.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/jobs/request_checks.h"
#include "server/rpc/grpc_status.h"

namespace penstock::server {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;

absl::Status Gone() {
  return Error(absl::StatusCode::kCancelled, reason::kCallCancelled, "the client is gone");
}

}  // namespace

TraceReactor::TraceReactor(ServiceContext& services, std::string job)
    : services_(services), job_(std::move(job)) {}

void TraceReactor::Begin() {
  self_ = shared_from_this();
  if (absl::Status room = services_.transfer_streams.Begin(); !room.ok()) return Fail(room);
  counted_ = true;
  if (absl::Status form = CheckJobName(job_, "name"); !form.ok()) return Fail(form);
  subscription_ = services_.hub.Subscribe(job_, [weak = weak_from_this()](Topic) {
    if (const auto self = weak.lock()) self->services_.control.Post([self] { self->Look(); });
  });
  services_.control.Post([self = self_] { self->Ask(); });
}

void TraceReactor::Ask() {
  if (phase_ != Phase::kWaiting) return;
  absl::StatusOr<TraceTicket> ticket = services_.traces.Request(job_);
  if (!ticket.ok()) return Fail(ticket.status());
  ticket_ = *std::move(ticket);
}

void TraceReactor::Look() {
  if (phase_ != Phase::kWaiting || !ticket_) return;
  const auto found = services_.traces.Find(*ticket_);
  if (!found.ok()) return Fail(found.status());
  if (!found->has_value()) return;
  phase_ = Phase::kSending;
  services_.streams.Post([self = self_, path = **found] { self->Load(path); });
}

void TraceReactor::Fail(const absl::Status& status) {
  phase_ = Phase::kFinished;
  Finish(ToGrpcStatus(status));
}

void TraceReactor::Load(const std::string& path) {
  const size_t slash = path.rfind('/');
  const absl::StatusOr<RootedDirectory> directory = RootedDirectory::Open(path.substr(0, slash));
  absl::StatusOr<ReadableFile> file =
      directory.ok() ? directory->OpenFile(path.substr(slash + 1)) : directory.status();
  if (!file.ok()) {
    return Finish(ToGrpcStatus(Error(
        absl::StatusCode::kUnavailable, reason::kIoError,
        absl::StrCat("the worker of ", job_, " could not write the timeline; its log says why"),
        {{"file", path}})));
  }
  file_ = *std::move(file);
  SendNext();
}

// The text is ASCII (engine/plan/chrome_trace.h), so it can be cut anywhere.
void TraceReactor::SendNext() {
  std::string& piece = *message_.mutable_chrome_trace();
  piece.resize(static_cast<size_t>(std::min(kPieceBytes, file_->size() - sent_)));
  const absl::Status read = file_->ReadAt(sent_, std::as_writable_bytes(std::span(piece)));
  if (!read.ok()) return Finish(ToGrpcStatus(read));
  sent_ += static_cast<int64_t>(piece.size());
  if (sent_ < file_->size()) return StartWrite(&message_);
  StartWriteAndFinish(&message_, grpc::WriteOptions(), grpc::Status::OK);
}

void TraceReactor::OnWriteDone(bool ok) {
  if (!ok) return Finish(ToGrpcStatus(Gone()));
  services_.streams.Post([self = self_] { self->SendNext(); });
}

void TraceReactor::OnCancel() {
  services_.control.Post([self = shared_from_this()] {
    if (self->phase_ == Phase::kWaiting) self->Fail(Gone());
  });
}

void TraceReactor::OnDone() {
  services_.hub.Unsubscribe(subscription_);
  if (counted_) services_.transfer_streams.End();
  // Closures on their way may hold the reactor a little longer.
  const std::shared_ptr<TraceReactor> last = std::move(self_);
}

}  // namespace penstock::server
