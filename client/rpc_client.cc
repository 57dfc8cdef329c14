#include "client/rpc_client.h"

#include <unistd.h>

#include <cerrno>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "engine/base/status.h"
#include "engine/base/version.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "grpcpp/support/client_interceptor.h"
#include "server/status_proto.h"

namespace penstock::client {
namespace {

// What may be done twice: what reads, what has a request_id, and what once more changes nothing.
// Not CreateToken and CalibrateDevice (see admin_service.proto), and not InspectData, which is
// slow; WatchJobs is continued by its cursor instead, and files by their offset.
constexpr char kServiceConfig[] = R"json({
  "methodConfig": [{
    "name": [
      {"service": "penstock.v1.JobService", "method": "CreateJob"},
      {"service": "penstock.v1.JobService", "method": "PlanJob"},
      {"service": "penstock.v1.JobService", "method": "GetJob"},
      {"service": "penstock.v1.JobService", "method": "ListJobs"},
      {"service": "penstock.v1.JobService", "method": "CancelJob"},
      {"service": "penstock.v1.JobService", "method": "CreateSweep"},
      {"service": "penstock.v1.JobService", "method": "CancelSweep"},
      {"service": "penstock.v1.JobService", "method": "PauseJob"},
      {"service": "penstock.v1.JobService", "method": "ResumeJob"},
      {"service": "penstock.v1.JobService", "method": "DeleteJob"},
      {"service": "penstock.v1.JobService", "method": "ListJobMetrics"},
      {"service": "penstock.v1.CheckpointService", "method": "ListCheckpoints"},
      {"service": "penstock.v1.CheckpointService", "method": "GetCheckpoint"},
      {"service": "penstock.v1.CheckpointService", "method": "SaveCheckpoint"},
      {"service": "penstock.v1.CheckpointService", "method": "PinCheckpoint"},
      {"service": "penstock.v1.CheckpointService", "method": "DeleteCheckpoint"},
      {"service": "penstock.v1.CheckpointService", "method": "ExportCheckpoint"},
      {"service": "penstock.v1.AdminService", "method": "GetServerInfo"},
      {"service": "penstock.v1.AdminService", "method": "ListDevices"},
      {"service": "penstock.v1.AdminService", "method": "ReleaseDevice"},
      {"service": "penstock.v1.AdminService", "method": "DrainServer"},
      {"service": "penstock.v1.AdminService", "method": "ListTokens"},
      {"service": "penstock.v1.AdminService", "method": "RevokeToken"},
      {"service": "penstock.v1.AdminService", "method": "ListAuditEntries"},
      {"service": "penstock.v1.TransferService", "method": "ListFiles"},
      {"service": "penstock.v1.TransferService", "method": "CreateUpload"},
      {"service": "penstock.v1.TransferService", "method": "GetUpload"},
      {"service": "penstock.v1.TransferService", "method": "ListUploads"},
      {"service": "penstock.v1.TransferService", "method": "FinishUpload"},
      {"service": "penstock.v1.TransferService", "method": "DeleteUpload"}
    ],
    "retryPolicy": {
      "maxAttempts": 4,
      "initialBackoff": "0.1s",
      "maxBackoff": "1s",
      "backoffMultiplier": 2,
      "retryableStatusCodes": ["UNAVAILABLE"]
    }
  }]
})json";

// The program and the trace of a step are the largest replies.
constexpr int kMaxReplyBytes = 128 << 20;

// Adds the token to every call of a channel, streams as well.
class TokenSender : public grpc::experimental::Interceptor {
 public:
  explicit TokenSender(std::string header) : header_(std::move(header)) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace("authorization", header_);
    }
    methods->Proceed();
  }

 private:
  const std::string header_;
};

class TokenSenderFactory : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenSenderFactory(const std::string& token) : header_(absl::StrCat("Bearer ", token)) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo* /*info*/) override {
    return new TokenSender(header_);
  }

 private:
  const std::string header_;
};

// Whether it is a unix socket that is there and not for us, or in a directory that is not.
bool IsSomeoneElses(absl::string_view target) {
  return absl::ConsumePrefix(&target, "unix:") &&
         access(std::string(target).c_str(), R_OK | W_OK) != 0 && errno == EACCES;
}

std::shared_ptr<grpc::Channel> Connect(const Endpoint& endpoint, const Credentials& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetServiceConfigJSON(kServiceConfig);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 1);
  arguments.SetMaxReceiveMessageSize(kMaxReplyBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // How long a connection may take to come up, whatever its name says: a daemon on a busy machine
  // needs more than a moment.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  if (!credentials.token.empty()) {
    interceptors.push_back(std::make_unique<TokenSenderFactory>(credentials.token));
  }
  const auto channel_credentials =
      endpoint.tls ? grpc::SslCredentials({.pem_root_certs = credentials.tls_ca,
                                           .pem_private_key = credentials.tls_key,
                                           .pem_cert_chain = credentials.tls_cert})
                   : grpc::InsecureChannelCredentials();
  return grpc::experimental::CreateCustomChannelWithInterceptors(
      endpoint.target, channel_credentials, arguments, std::move(interceptors));
}

}  // namespace

RpcClient::RpcClient(Endpoint endpoint, absl::Duration timeout, const Credentials& credentials)
    : endpoint_(std::move(endpoint)),
      timeout_(timeout),
      channel_(Connect(endpoint_, credentials)),
      jobs_(v1::JobService::NewStub(channel_)),
      checkpoints_(v1::CheckpointService::NewStub(channel_)),
      admin_(v1::AdminService::NewStub(channel_)),
      transfers_(v1::TransferService::NewStub(channel_)) {}

absl::StatusOr<v1::Job> RpcClient::GetJob(const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  absl::StatusOr<v1::GetJobResponse> response =
      Call(jobs(), &v1::JobService::Stub::GetJob, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_job());
}

absl::Status RpcClient::ToStatus(const grpc::Status& status) const {
  if (status.ok()) return absl::OkStatus();
  google::rpc::Status proto;
  if (!status.error_details().empty() && proto.ParseFromString(status.error_details()) &&
      proto.code() != 0) {
    return FromStatusProto(proto);
  }
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return Error(absl::StatusCode::kDeadlineExceeded, reason::kCallTimedOut,
                 absl::StrCat("the daemon at ", endpoint_.target, " did not answer within ",
                              absl::FormatDuration(timeout_),
                              "; a longer --timeout lets it. What was to be changed may have been "
                              "changed all the same: look before you ask again"),
                 {{"endpoint", endpoint_.target}});
  }
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE && IsSomeoneElses(endpoint_.target)) {
    return Error(absl::StatusCode::kPermissionDenied, reason::kServerUnreachable,
                 absl::StrCat(endpoint_.target, " (from ", endpoint_.source,
                              ") is a socket that this user may not use"),
                 {{"endpoint", endpoint_.target},
                  {"fix",
                   "ask whoever runs penstockd there for a token and the address that it listens "
                   "on, and name that with --endpoint; or start a penstockd of your own"}});
  }
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return Error(absl::StatusCode::kUnavailable, reason::kServerUnreachable,
                 absl::StrCat("no daemon answers at ", endpoint_.target, " (from ",
                              endpoint_.source, "): ", status.error_message()),
                 {{"endpoint", endpoint_.target},
                  {"fix",
                   "start penstockd, or name its endpoint with --endpoint or "
                   "PENSTOCK_ENDPOINT; https://host:port if it serves TLS, and its authority "
                   "with --tls-ca"}});
  }
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return Error(
        absl::StatusCode::kUnimplemented, reason::kFeatureUnsupported,
        absl::StrCat("the daemon at ", endpoint_.target,
                     " does not have this call: it is of another version than this penstock, ",
                     Version(),
                     ". `penstock info` says which; use a penstock of that version, "
                     "or upgrade the daemon"),
        {{"endpoint", endpoint_.target}, {"client_version", Version()}});
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

bool IsBrokenConnection(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNKNOWN:
      return true;
    default:
      return false;
  }
}

std::string ServiceConfigJson() { return kServiceConfig; }

std::string NewRequestId() {
  std::random_device random;
  const uint32_t a = random(), b = random(), c = random(), d = random();
  return absl::StrFormat("%08x-%04x-4%03x-%04x-%04x%08x", a, b >> 16, b & 0xFFF,
                         0x8000 | ((c >> 16) & 0x3FFF), c & 0xFFFF, d);
}

std::string JobName(const std::string& text) {
  return absl::StartsWith(text, "jobs/") ? text : absl::StrCat("jobs/", text);
}

std::string SweepName(const std::string& text) {
  return absl::StartsWith(text, "sweeps/") ? text : absl::StrCat("sweeps/", text);
}

}  // namespace penstock::client
