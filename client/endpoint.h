// Where the daemon is.
//
// In this order: --endpoint, PENSTOCK_ENDPOINT, the file that PENSTOCK_ENDPOINT_FILE names (the
// endpoint.json that penstockd writes), the context in use (contexts.h), the default socket
// $XDG_STATE_HOME/penstock/penstock.sock (~/.local/state/penstock/penstock.sock).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace penstock::client {

struct Endpoint {
  std::string target;  // for gRPC: unix:/path or host:port
  std::string source;  // for messages: "--endpoint", "PENSTOCK_ENDPOINT", ...
  bool tls = false;    // written as https://host:port
};

using GetEnvironment = std::function<std::optional<std::string>(const std::string&)>;
std::optional<std::string> GetProcessEnvironment(const std::string& name);

// `flag` is empty if not given. InvalidArgument for text that is no endpoint, NotFound for an
// endpoint file that is not there.
absl::StatusOr<Endpoint> FindEndpoint(const std::string& flag, const GetEnvironment& environment);

}  // namespace penstock::client
