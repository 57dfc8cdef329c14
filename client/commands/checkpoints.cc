#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "client/checkpoint_list.h"
#include "client/commands/commands.h"
#include "client/job_text.h"

namespace penstock::client {

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
