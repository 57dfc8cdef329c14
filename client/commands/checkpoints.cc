#include <memory>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/commands/checkpoint_list.h"
#include "client/commands/commands.h"
#include "client/job_text.h"
#include "engine/base/status.h"

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

absl::StatusOr<std::string> FindCheckpoint(RpcClient& client, const std::string& text) {
  const std::string name = JobName(text);
  if (absl::StrContains(name, "/checkpoints/")) return name;
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ListCheckpointsResponse all,
                            ListAllCheckpoints(client, name));
  if (all.checkpoints().empty()) {
    return Error(absl::StatusCode::kNotFound, reason::kCheckpointNotFound,
                 absl::StrCat(name, ": has no checkpoint; one is written when the job ends, or ",
                              "every checkpoints.every_steps steps"));
  }
  return all.checkpoints(all.checkpoints_size() - 1).name();
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
