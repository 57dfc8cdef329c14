#include "client/commands/context.h"

#include <utility>

#include "CLI/CLI.hpp"
#include "client/endpoint.h"
#include "engine/base/status.h"

namespace penstock::client {

absl::StatusOr<std::unique_ptr<RpcClient>> Context::Connect() const {
  PENSTOCK_ASSIGN_OR_RETURN(Endpoint found, FindEndpoint(endpoint, GetProcessEnvironment));
  PENSTOCK_ASSIGN_OR_RETURN(const Credentials known,
                            FindCredentials(credentials, found, GetProcessEnvironment));
  return std::make_unique<RpcClient>(std::move(found), absl::Seconds(timeout_seconds), known);
}

ExitCode Context::Fail(const absl::Status& status) const {
  PrintTalk(FormatError(format, status));
  return ExitCodeOf(status);
}

ExitCode Context::Fail(const absl::Status& status, const std::string& request_id) const {
  ErrorMetadata metadata = MetadataOf(status);
  if (!request_id.empty()) metadata["request_id"] = request_id;
  return Fail(Error(status.code(), ReasonOf(status), std::string(status.message()), metadata));
}

ExitCode Context::Print(const google::protobuf::Message& reply,
                        const std::function<std::string()>& table) const {
  PrintData(format == Format::kTable ? table() : FormatMessage(format, reply));
  return ExitCode::kOk;
}

void OnConnected(CLI::App& command, Context& context, std::function<ExitCode(RpcClient&)> run) {
  command.callback([&context, run = std::move(run)] {
    absl::StatusOr<std::unique_ptr<RpcClient>> client = context.Connect();
    context.exit_code = client.ok() ? run(**client) : context.Fail(client.status());
  });
}

}  // namespace penstock::client
