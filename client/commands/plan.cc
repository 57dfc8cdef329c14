#include <memory>

#include "CLI/CLI.hpp"
#include "client/commands/commands.h"
#include "client/commands/submit_job.h"
#include "client/job_file.h"
#include "client/job_text.h"

namespace penstock::client {
namespace {

struct PlanOptions {
  std::string file;
  std::vector<std::string> settings;
  std::string machine;
  bool explain = false;
};

ExitCode Plan(const Context& context, const PlanOptions& options, RpcClient& client) {
  const absl::StatusOr<v1::JobSpec> spec = LoadJobFile(options.file, options.settings);
  if (!spec.ok()) return FailToLoad(context, spec.status());
  v1::CreateJobRequest request;
  *request.mutable_spec() = *spec;
  request.set_validate_only(true);
  request.set_plan_for_machine(options.machine);
  const absl::StatusOr<v1::Job> job = CreateJob(context, client, std::move(request));
  if (!job.ok()) return ExitCodeOf(job.status());
  return context.Print(job->plan(), [&] { return PlanPage(job->plan(), options.explain); });
}

}  // namespace

void AddPlan(CLI::App& app, Context& context) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command =
      app.add_subcommand("plan", "Say how a job would run, how fast, and in which memory");
  command->add_option("file", options->file, "Job file, YAML or JSON; - reads standard input")
      ->required();
  command->add_option("--set", options->settings, "Set a field: batch.tokens_per_step=65536")
      ->allow_extra_args(false);
  command->add_option("--machine", options->machine,
                      "Plan for a machine of this name instead of the daemon's: h200-1.5tb");
  command->add_flag("--explain", options->explain,
                    "Name the policies that were not chosen, and why");
  OnConnected(*command, context,
              [&context, options](RpcClient& client) { return Plan(context, *options, client); });
}

}  // namespace penstock::client
