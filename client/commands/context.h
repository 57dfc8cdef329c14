// What every command has: the options that stand before or after any command, a connection made
// when it is needed, and one way to fail.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/exit_code.h"
#include "client/output.h"
#include "client/rpc_client.h"

namespace CLI {
class App;
}

namespace penstock::client {

struct Context {
  std::string endpoint;  // --endpoint, empty if not given
  CredentialOptions credentials;
  double timeout_seconds = 30;
  Format format = Format::kTable;
  bool quiet = false;
  // What the command that ran has returned.
  ExitCode exit_code = ExitCode::kOk;

  absl::StatusOr<std::unique_ptr<RpcClient>> Connect() const;

  // Prints the error to stderr.
  ExitCode Fail(const absl::Status& status) const;
  // Prints the error and the request_id with which the call can be made again to the same effect;
  // an empty one if it was not made.
  ExitCode Fail(const absl::Status& status, const std::string& request_id) const;
  // Prints a reply: as JSON or YAML, or what `table` makes of it.
  ExitCode Print(const google::protobuf::Message& reply,
                 const std::function<std::string()>& table) const;
};

// Runs `run` with a connection when `command` is parsed.
void OnConnected(CLI::App& command, Context& context, std::function<ExitCode(RpcClient&)> run);

}  // namespace penstock::client
