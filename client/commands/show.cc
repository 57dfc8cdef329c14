#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "client/commands/commands.h"
#include "client/job_text.h"

namespace penstock::client {

void AddShow(CLI::App& app, Context& context) {
  auto name = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("show", "Show one job: state, progress, plan, spec");
  command->add_option("job", *name, "Id or name of the job")->required();
  OnConnected(*command, context, [&context, name](RpcClient& client) {
    const absl::StatusOr<v1::Job> job = client.GetJob(JobName(*name));
    if (!job.ok()) return context.Fail(job.status());
    return context.Print(*job, [&] { return JobPage(*job); });
  });
}

}  // namespace penstock::client
