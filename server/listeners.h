// Where the daemon listens: checks of addresses, and gRPC servers on them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server.h"

namespace penstock::server {

// InvalidArgument / CONFIG_INVALID unless `address` is host:port with a loopback host.
absl::Status CheckLoopback(const std::string& address);

// Makes `path` free for a unix socket. A socket nobody listens on is removed; a live one, another
// kind of file, or a path that does not fit into a socket address is refused with
// FailedPrecondition / CONFIG_INVALID.
// REQUIRES: the caller holds the state directory's lock.
absl::Status ClearSocketPath(const std::string& path);

struct ListenArgs {
  std::string socket;       // unix socket, made with mode 0600
  std::string tcp_address;  // checked; empty: none
  std::vector<grpc::Service*> services;
  grpc::ResourceQuota* quota = nullptr;
};
struct Listener {
  std::unique_ptr<grpc::Server> server;
  std::string tcp_address;  // with the port that was picked
};
absl::StatusOr<Listener> Listen(const ListenArgs& args);

}  // namespace penstock::server
