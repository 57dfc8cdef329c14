#include "server/rpc/door.h"

#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "engine/provenance/sha256.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "grpcpp/security/auth_context.h"
#include "server/reasons.h"
#include "spdlog/spdlog.h"

namespace penstock::server {
namespace {

constexpr char kAuthorization[] = "authorization";
constexpr char kUnixPeer[] = "unix";
constexpr size_t kMaxPeer = 100;

// "unix", or "ipv4:127.0.0.1:4711".
std::string PeerOf(const grpc::ServerContextBase& context) {
  const std::string peer = context.peer();
  return absl::StartsWith(peer, "unix:") ? kUnixPeer : peer.substr(0, kMaxPeer);
}

v1::Caller MakeCaller(const std::string& user, v1::Role role) {
  v1::Caller caller;
  caller.set_user(user);
  caller.set_role(role);
  return caller;
}

// The common name of the certificate that the client has proved to have; empty without one.
std::string CertificateName(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  if (auth == nullptr) return "";
  const std::vector<grpc::string_ref> names = auth->FindPropertyValues("x509_common_name");
  return names.size() == 1 ? std::string(names[0].data(), names[0].size()) : "";
}

// The request's bytes with fields and maps in one order.
std::string Deterministic(const google::protobuf::Message& request) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  request.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

absl::Status BadHeader(const std::string& what) {
  return Error(absl::StatusCode::kUnauthenticated, reason::kTokenInvalid,
               absl::StrCat("the call has ", what,
                            "; expected one header \"authorization: Bearer pst_...\""));
}

absl::Status RateLimited(const std::string& user, absl::Duration wait, int32_t limit) {
  const std::string seconds = absl::StrCat(absl::ToDoubleSeconds(wait));
  return Error(absl::StatusCode::kResourceExhausted, reason::kRateLimited,
               absl::StrCat(user, " calls more than ", limit,
                            " times a second (calls_per_second); call again in ", seconds, " s"),
               {{"user", user}, {"limit", absl::StrCat(limit)}, {"retry_seconds", seconds}});
}

}  // namespace

absl::StatusOr<Identity> Door::Identify(const grpc::ServerContextBase& context) {
  const auto [begin, end] = context.client_metadata().equal_range(kAuthorization);
  if (begin != end) {
    if (std::next(begin) != end) return BadHeader("several authorization headers");
    return IdentifyByHeader({begin->second.data(), begin->second.size()});
  }
  if (const std::string name = CertificateName(context); !name.empty()) {
    for (const internal::MappedSubject& subject : options_.subjects) {
      if (subject.common_name() != name) continue;
      return Identity{.caller = MakeCaller(subject.user(), *ParseRole(subject.role())),
                      .token = nullptr};
    }
    return Error(absl::StatusCode::kUnauthenticated, reason::kCertificateUnknown,
                 absl::StrCat("the client certificate's common name \"", name.substr(0, kMaxPeer),
                              "\" stands for nobody; ask an admin to add it to tls.subjects of "
                              "the daemon's config"),
                 {{"common_name", name.substr(0, kMaxPeer)}});
  }
  if (PeerOf(context) == kUnixPeer) {
    return Identity{.caller = MakeCaller("local", v1::ROLE_ADMIN), .token = nullptr};
  }
  return IdentifyStranger();
}

absl::StatusOr<Identity> Door::IdentifyByHeader(std::string_view authorization) {
  absl::string_view value(authorization.data(), authorization.size());
  if (!absl::StartsWithIgnoreCase(value, "Bearer ")) {
    return BadHeader("an authorization header of another kind");
  }
  value.remove_prefix(7);
  return tokens_.Check(std::string_view(value.data(), value.size()), absl::Now());
}

absl::StatusOr<Identity> Door::IdentifyStranger() const {
  if (lets_in_strangers()) {
    return Identity{.caller = MakeCaller("anonymous", v1::ROLE_USER), .token = nullptr};
  }
  return Error(absl::StatusCode::kUnauthenticated, reason::kTokenMissing,
               "this daemon wants a token, and the call has none; ask an admin for one "
               "(penstock admin token create) and set PENSTOCK_TOKEN or --token-file");
}

absl::StatusOr<std::shared_ptr<Call>> Door::Decide(std::string_view method,
                                                   const grpc::ServerContextBase& context,
                                                   const google::protobuf::Message* request) {
  PENSTOCK_ASSIGN_OR_RETURN(Identity identity, Identify(context));
  const MethodRule* const rule = FindRule(method);
  if (rule == nullptr) {
    return Error(absl::StatusCode::kPermissionDenied, reason::kInternal,
                 absl::StrCat(std::string(method), " is not in the method table: let in nobody"));
  }
  const v1::Caller& caller = identity.caller;
  PENSTOCK_RETURN_IF_ERROR(CheckRole(*rule, caller));
  auto call = std::make_shared<Call>();
  if (request != nullptr) call->resource = ResourceOf(*rule, *request);
  if (rule->whose == Whose::kOwners && request != nullptr) {
    const std::string owned = OwnedPart(call->resource);
    // Of one that is not there, the service says so.
    if (const auto owner = owners_.Find(owned)) {
      PENSTOCK_RETURN_IF_ERROR(CheckOwner(caller, owned, *owner));
    }
  }
  call->peer = PeerOf(context);
  // Who has the socket could end the daemon as well.
  if (call->peer != kUnixPeer || identity.token != nullptr) {
    const absl::Duration wait = rates_.Take(caller.user(), absl::Now());
    if (wait > absl::ZeroDuration()) {
      return RateLimited(caller.user(), wait, options_.calls_per_second);
    }
  }
  call->method = std::string(method);
  call->changes = rule->effect == Effect::kChanges;
  if (call->changes && request != nullptr) {
    call->request_sha256 = Sha256Of(Deterministic(*request));
  }
  call->identity = std::move(identity);
  return call;
}

absl::StatusOr<std::shared_ptr<Call>> Door::Admit(std::string_view method,
                                                  const grpc::ServerContextBase& context,
                                                  const google::protobuf::Message* request) {
  absl::StatusOr<std::shared_ptr<Call>> call = Decide(method, context, request);
  if (!call.ok()) NoteRefusal(method, PeerOf(context), call.status());
  return call;
}

absl::Status Door::AdmitReader(const grpc::ServerContextBase& context) {
  // Every role may read.
  const absl::Status known = Identify(context).status();
  if (!known.ok()) NoteRefusal("another service", PeerOf(context), known);
  return known;
}

absl::StatusOr<v1::Caller> Door::AdmitHttp(std::string_view authorization) {
  const absl::StatusOr<Identity> known =
      authorization.empty() ? IdentifyStranger() : IdentifyByHeader(authorization);
  if (!known.ok()) {
    NoteRefusal("a page", "http", known.status());
    return known.status();
  }
  const absl::Duration wait = rates_.Take(known->caller.user(), absl::Now());
  if (wait > absl::ZeroDuration()) {
    return RateLimited(known->caller.user(), wait, options_.calls_per_second);
  }
  return known->caller;
}

void Door::NoteRefusal(std::string_view method, const std::string& peer, const absl::Status& why) {
  const int64_t count = ++refused_;
  std::lock_guard lock(log_mutex_);
  const absl::Time now = absl::Now();
  if (now - last_log_ < absl::Seconds(1)) return;
  spdlog::warn("refused {} from {}: {} ({} refused since the last such line)", method, peer,
               ReasonOf(why), count - refused_at_last_log_);
  last_log_ = now;
  refused_at_last_log_ = count;
}

}  // namespace penstock::server
