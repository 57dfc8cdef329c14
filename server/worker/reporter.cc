#include "server/worker/reporter.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "server/status_proto.h"
#include "spdlog/spdlog.h"

namespace penstock::server {
namespace {

constexpr absl::Duration kHeartbeat = absl::Milliseconds(500);
// Events that come within this time share a report.
constexpr absl::Duration kGather = absl::Milliseconds(20);
constexpr absl::Duration kFirstPause = absl::Milliseconds(200);
constexpr absl::Duration kLongestPause = absl::Seconds(2);
constexpr std::chrono::seconds kCallDeadline(10);

std::shared_ptr<grpc::Channel> Connect(const std::string& socket) {
  grpc::ChannelArguments arguments;
  // How long a connection may take to come up, whatever its name says: a daemon on a busy machine
  // needs more than a moment.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  return grpc::CreateCustomChannel(absl::StrCat("unix:", socket),
                                   grpc::InsecureChannelCredentials(), arguments);
}

// The attempt belongs to another worker now. _exit: no destructor may touch the job's files.
[[noreturn]] void LeaveAtOnce(const char* why) {
  spdlog::warn("{}; exiting without touching anything", why);
  spdlog::default_logger()->flush();
  _exit(0);
}

absl::Status ToStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  google::rpc::Status proto;
  if (proto.ParseFromString(status.error_details()) && proto.code() != 0) {
    return FromStatusProto(proto);
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

void PrepareCall(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + kCallDeadline);
}

}  // namespace

Reporter::Reporter(const std::string& socket, internal::WorkerIdentity identity,
                   EventJournal* journal)
    : identity_(std::move(identity)),
      journal_(journal),
      stub_(internal::WorkerService::NewStub(Connect(socket))),
      thread_([this] { Run(); }) {}

Reporter::~Reporter() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void Reporter::Record(internal::WorkerEvent event) {
  journal_->Append(std::move(event));
  absl::MutexLock lock(&mutex_);
  has_news_ = true;
}

void Reporter::SetProgress(const v1::JobProgress& progress) {
  absl::MutexLock lock(&mutex_);
  progress_ = progress;
}

bool Reporter::WaitUntilAcknowledged(absl::Duration limit) {
  const absl::Time deadline = absl::Now() + limit;
  while (journal_->HasPending()) {
    if (absl::Now() >= deadline) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

bool Reporter::Stopping() {
  absl::MutexLock lock(&mutex_);
  return stopping_;
}

void Reporter::WaitForWork() {
  absl::MutexLock lock(&mutex_);
  const auto ready = [this]()
                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return has_news_ || stopping_; };
  if (mutex_.AwaitWithTimeout(absl::Condition(&ready), kHeartbeat) && !stopping_) {
    mutex_.AwaitWithTimeout(absl::Condition(&stopping_), kGather);
  }
  has_news_ = false;
}

void Reporter::Run() {
  absl::Duration pause = kFirstPause;
  while (!Stopping()) {
    const absl::Status status = attached_ ? Report() : Attach();
    if (status.ok()) {
      pause = kFirstPause;
      // More than a batch is waiting after an absence of the daemon: no reason to wait.
      if (!journal_->HasPending()) WaitForWork();
      continue;
    }
    if (ReasonOf(status) == reason::kStaleAttempt) LeaveAtOnce("this attempt is over");
    if (attached_) spdlog::warn("lost the daemon, will attach again: {}", status.ToString());
    attached_ = false;
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&stopping_), pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

absl::Status Reporter::Attach() {
  grpc::ClientContext context;
  PrepareCall(context);
  internal::AttachRequest request;
  *request.mutable_identity() = identity_;
  internal::AttachResponse response;
  PENSTOCK_RETURN_IF_ERROR(ToStatus(stub_->Attach(&context, request, &response)));
  journal_->Acknowledge(response.acknowledged());
  attached_ = true;
  spdlog::info("attached to the daemon, which has {} events of this attempt",
               response.acknowledged());
  return absl::OkStatus();
}

absl::Status Reporter::Report() {
  grpc::ClientContext context;
  PrepareCall(context);
  internal::ReportRequest request;
  *request.mutable_identity() = identity_;
  for (internal::WorkerEvent& event : journal_->Batch()) *request.add_events() = std::move(event);
  {
    absl::MutexLock lock(&mutex_);
    *request.mutable_progress() = progress_;
  }
  internal::ReportResponse response;
  PENSTOCK_RETURN_IF_ERROR(ToStatus(stub_->Report(&context, request, &response)));
  journal_->Acknowledge(response.acknowledged());
  if (const int64_t dropped = journal_->TakeDropped(); dropped > 0) {
    spdlog::error("dropped {} metric points: the journal could not be written", dropped);
  }
  save_request_.store(response.save_request(), std::memory_order_relaxed);
  trace_request_.store(response.trace_request(), std::memory_order_relaxed);
  if (response.command() == internal::WORKER_COMMAND_EXIT) LeaveAtOnce("the daemon said exit");
  if (response.command() == internal::WORKER_COMMAND_STOP && wish() == Wish::kContinue) {
    spdlog::info("the daemon asks to stop: saving after the current step");
    wish_.store(Wish::kStop, std::memory_order_relaxed);
  }
  return absl::OkStatus();
}

}  // namespace penstock::server
