// Where calls come in: who is it, may they do that, and not too often. Each method of each service
// goes through here (guarded_services.h); what has passed runs as the thread's current Call.
//
// A caller is known, in this order, by a bearer token; by a client certificate whose name the
// config maps; by the unix socket, whose file lets in the daemon's own user alone: "local", an
// admin. Without any of these a call is refused, unless the daemon listens on loopback and wants no
// token: then it comes from "anonymous", a user.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/message.h"
#include "grpcpp/server_context.h"
#include "penstock/internal/config.pb.h"
#include "server/access/call.h"
#include "server/access/method_table.h"
#include "server/access/owner_index.h"
#include "server/access/rate_limit.h"
#include "server/access/token_book.h"

namespace penstock::server {

struct DoorOptions {
  enum class Strangers : uint8_t { kRefused, kAnonymous };
  Strangers strangers = Strangers::kRefused;
  std::vector<internal::MappedSubject> subjects;
  int32_t calls_per_second = 0;  // of one user; 0: any number
};

// Thread-safe. Refusals are logged, one a second and with a count of those between: not every knock
// shall fill the disk.
class Door {
 public:
  Door(DoorOptions options, TokenBook& tokens, const OwnerIndex& owners)
      : options_(std::move(options)),
        tokens_(tokens),
        owners_(owners),
        rates_(options_.calls_per_second) {}

  // `request` is null where it comes in a stream. Unauthenticated: TOKEN_..., CERTIFICATE_UNKNOWN;
  // PermissionDenied: ROLE_INSUFFICIENT, NOT_OWNER; ResourceExhausted / RATE_LIMITED.
  absl::StatusOr<std::shared_ptr<Call>> Admit(std::string_view method,
                                              const grpc::ServerContextBase& context,
                                              const google::protobuf::Message* request);
  // For services that are not ours: whoever may read.
  absl::Status AdmitReader(const grpc::ServerContextBase& context);

  // A reader over HTTP, whose header this is; empty: there is none. Errors as above.
  absl::StatusOr<v1::Caller> AdmitHttp(std::string_view authorization);

  bool lets_in_strangers() const {
    return options_.strangers == DoorOptions::Strangers::kAnonymous;
  }
  int64_t refused() const { return refused_; }

 private:
  absl::StatusOr<Identity> Identify(const grpc::ServerContextBase& context);
  absl::StatusOr<Identity> IdentifyByHeader(std::string_view authorization);
  absl::StatusOr<Identity> IdentifyStranger() const;
  absl::StatusOr<std::shared_ptr<Call>> Decide(std::string_view method,
                                               const grpc::ServerContextBase& context,
                                               const google::protobuf::Message* request);
  void NoteRefusal(std::string_view method, const std::string& peer, const absl::Status& why);

  const DoorOptions options_;
  TokenBook& tokens_;
  const OwnerIndex& owners_;
  RateLimiter rates_;
  std::atomic<int64_t> refused_ = 0;
  std::mutex log_mutex_;
  absl::Time last_log_ = absl::InfinitePast();  // guarded by log_mutex_
  int64_t refused_at_last_log_ = 0;             // guarded by log_mutex_
};

}  // namespace penstock::server
