#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"

namespace penstock::client {

void AddDelete(CLI::App& app, Context& context) {
  auto name = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "delete", "Delete an ended job with its logs, metrics and checkpoints; exports stay");
  command->add_option("job", *name, "Id or name of the job")->required();
  OnConnected(*command, context, [&context, name](RpcClient& client) {
    v1::DeleteJobRequest request;
    request.set_name(JobName(*name));
    request.set_request_id(NewRequestId());
    const absl::StatusOr<v1::DeleteJobResponse> response =
        client.Call(client.jobs(), &v1::JobService::Stub::DeleteJob, request);
    if (!response.ok()) return context.Fail(response.status(), request.request_id());
    return context.Print(*response, [&] { return absl::StrCat(request.name(), " deleted\n"); });
  });
}

}  // namespace penstock::client
