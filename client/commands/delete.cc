#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"

namespace penstock::client {
namespace {

// DeleteJob or DeleteCheckpoint.
template <typename Stub, typename Request, typename Response>
ExitCode Delete(const Context& context, const std::string& name, RpcClient& client, Stub& stub,
                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*)) {
  Request request;
  request.set_name(name);
  request.set_request_id(NewRequestId());
  const absl::StatusOr<Response> response = client.Call(stub, method, request);
  if (!response.ok()) return context.Fail(response.status(), request.request_id());
  return context.Print(*response, [&] { return absl::StrCat(name, " deleted\n"); });
}

}  // namespace

void AddDelete(CLI::App& app, Context& context) {
  auto text = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("delete",
                         "Delete an ended job with its logs, metrics and "
                         "checkpoints, or one checkpoint, or an upload; exports stay");
  command->add_option("job", *text, "Id or name of the job, {job}/checkpoints/{step}, uploads/{id}")
      ->required();
  OnConnected(*command, context, [&context, text](RpcClient& client) {
    if (absl::StartsWith(*text, "uploads/")) {
      return Delete(context, *text, client, client.transfers(),
                    &v1::TransferService::Stub::DeleteUpload);
    }
    const std::string name = JobName(*text);
    if (absl::StrContains(name, "/checkpoints/")) {
      return Delete(context, name, client, client.checkpoints(),
                    &v1::CheckpointService::Stub::DeleteCheckpoint);
    }
    return Delete(context, name, client, client.jobs(), &v1::JobService::Stub::DeleteJob);
  });
}

}  // namespace penstock::client
