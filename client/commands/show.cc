#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "client/commands/commands.h"
#include "client/job_text.h"

namespace penstock::client {

namespace {

ExitCode ShowCheckpoint(const Context& context, const std::string& name, RpcClient& client) {
  v1::GetCheckpointRequest request;
  request.set_name(JobName(name));
  const absl::StatusOr<v1::GetCheckpointResponse> response =
      client.Call(client.checkpoints(), &v1::CheckpointService::Stub::GetCheckpoint, request);
  if (!response.ok()) return context.Fail(response.status());
  return context.Print(response->checkpoint(),
                       [&] { return CheckpointPage(response->checkpoint()); });
}

}  // namespace

void AddShow(CLI::App& app, Context& context) {
  auto name = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("show", "Show one job: state, progress, plan, spec; or one checkpoint");
  command->add_option("job", *name, "Id or name of the job, or {job}/checkpoints/{step}")
      ->required();
  OnConnected(*command, context, [&context, name](RpcClient& client) {
    if (absl::StrContains(*name, "/checkpoints/")) return ShowCheckpoint(context, *name, client);
    const absl::StatusOr<v1::Job> job = client.GetJob(JobName(*name));
    if (!job.ok()) return context.Fail(job.status());
    return context.Print(*job, [&] { return JobPage(*job); });
  });
}

}  // namespace penstock::client
