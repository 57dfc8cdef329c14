// Where the daemon listens: checks of addresses, and gRPC servers on them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "server/rpc/door.h"
#include "server/rpc/rpc_meter.h"

namespace penstock::server {

// What a connection to an address is protected by.
enum class Protection : uint8_t {
  kNone,
  kTlsAndIdentity,  // TLS, and no caller without a token or a certificate
};
// The one rule: nothing but loopback without protection. InvalidArgument / CONFIG_INVALID
// otherwise, and if `address` is no host:port. `field` is the config's name for it.
absl::Status CheckAddress(const std::string& field, const std::string& address,
                          Protection protection);

// Makes `path` free for a unix socket. A socket nobody listens on is removed; a live one, another
// kind of file, or a path that does not fit into a socket address is refused with
// FailedPrecondition / CONFIG_INVALID.
// REQUIRES: the caller holds the state directory's lock.
absl::Status ClearSocketPath(const std::string& path);

struct ListenArgs {
  std::string socket;       // unix socket, made with mode 0600
  std::string tcp_address;  // checked; empty: none
  std::shared_ptr<grpc::ServerCredentials> tcp_credentials = nullptr;  // null: plaintext
  std::vector<grpc::Service*> services;
  Door* door = nullptr;       // for services that are not ours; null on the workers' socket
  RpcMeter* meter = nullptr;  // likewise null there
  grpc::ResourceQuota* quota = nullptr;
};
struct Listener {
  std::unique_ptr<grpc::Server> server;
  std::string tcp_address;  // with the port that was picked
};
absl::StatusOr<Listener> Listen(const ListenArgs& args);

}  // namespace penstock::server
