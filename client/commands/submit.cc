#include <memory>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/follow_job.h"
#include "client/commands/submit_job.h"
#include "client/job_file.h"
#include "client/job_text.h"
#include "engine/base/status.h"

namespace penstock::client {
namespace {

struct SubmitOptions {
  std::string file;
  std::vector<std::string> settings;
  std::string job_id;
  std::vector<std::string> after;
  bool follow = false;
  bool wait = false;
  bool validate_only = false;
};

ExitCode Submit(const Context& context, const SubmitOptions& options, RpcClient& client) {
  if (options.file.empty() && options.settings.empty()) {
    PrintTalk("error: no job: give a job file, or --set key.path=value\n");
    return ExitCode::kUsage;
  }
  const absl::StatusOr<v1::JobSpec> spec = LoadJobFile(options.file, options.settings);
  if (!spec.ok()) return FailToLoad(context, spec.status());
  v1::CreateJobRequest request;
  *request.mutable_spec() = *spec;
  for (const std::string& job : options.after) {
    request.mutable_spec()->mutable_queue()->add_after(JobName(job));
  }
  request.set_job_id(options.job_id);
  request.set_validate_only(options.validate_only);
  const absl::StatusOr<v1::Job> job = CreateJob(client, request);
  if (!job.ok()) return context.Fail(job.status(), request.request_id());
  if (options.validate_only) {
    return context.Print(*job, [&] { return JobPage(*job); });
  }
  context.Print(*job, [&] { return absl::StrCat(job->name(), "\n"); });
  if (!options.follow && !options.wait) return ExitCode::kOk;
  return FollowDetachably(
      context, client, job->name(),
      options.follow ? ProgressView::StyleFor(context.quiet) : ProgressView::Style::kSilent);
}

}  // namespace

void AddSubmit(CLI::App& app, Context& context) {
  auto options = std::make_shared<SubmitOptions>();
  CLI::App* command = app.add_subcommand("submit", "Submit a training job; prints its name");
  command->add_option("file", options->file, "Job file, YAML or JSON; - reads standard input");
  command->add_option("--set", options->settings, "Set a field: optimizer.learning_rate=1e-4")
      ->allow_extra_args(false);
  command->add_option("--job-id", options->job_id, "Id of the job; the daemon makes one if absent");
  command->add_option("--after", options->after, "Start after this job has succeeded; repeatable")
      ->allow_extra_args(false);
  CLI::Option* follow =
      command->add_flag("--follow", options->follow, "Show progress until the job has ended");
  command->add_flag("--wait", options->wait, "Wait silently until the job has ended")
      ->excludes(follow);
  command->add_flag("--validate-only", options->validate_only,
                    "Check the job and print it as it would run; submit nothing");
  OnConnected(*command, context,
              [&context, options](RpcClient& client) { return Submit(context, *options, client); });
}

}  // namespace penstock::client
