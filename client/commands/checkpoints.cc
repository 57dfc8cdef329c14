#include <memory>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "client/commands/checkpoint_list.h"
#include "client/commands/commands.h"
#include "client/job_text.h"

namespace penstock::client {

absl::StatusOr<v1::ListCheckpointsResponse> ListAllCheckpoints(RpcClient& client,
                                                               const std::string& job) {
  v1::ListCheckpointsRequest request;
  request.set_parent(job);
  v1::ListCheckpointsResponse all;
  while (true) {
    absl::StatusOr<v1::ListCheckpointsResponse> page =
        client.Call(client.checkpoints(), &v1::CheckpointService::Stub::ListCheckpoints, request);
    if (!page.ok()) return page.status();
    for (v1::Checkpoint& checkpoint : *page->mutable_checkpoints()) {
      *all.add_checkpoints() = std::move(checkpoint);
    }
    if (page->next_page_token().empty()) return all;
    request.set_page_token(page->next_page_token());
  }
}

void AddCheckpoints(CLI::App& app, Context& context) {
  auto name = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("checkpoints", "List the checkpoints of a job");
  command->add_option("job", *name, "Id or name of the job")->required();
  OnConnected(*command, context, [&context, name](RpcClient& client) {
    const auto all = ListAllCheckpoints(client, JobName(*name));
    if (!all.ok()) return context.Fail(all.status());
    return context.Print(*all, [&] { return CheckpointsTable(all->checkpoints()); });
  });
}

}  // namespace penstock::client
