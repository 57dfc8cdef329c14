#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/checkpoint_list.h"
#include "client/commands/commands.h"
#include "client/commands/follow_job.h"
#include "client/commands/submit_job.h"
#include "client/job_file.h"
#include "client/job_text.h"
#include "engine/base/status.h"

namespace penstock::client {
namespace {

struct Following {
  bool follow = false;
  bool wait = false;
};

void AddFollowing(CLI::App& command, Following& following) {
  CLI::Option* follow =
      command.add_flag("--follow", following.follow, "Show progress until the job has ended");
  command.add_flag("--wait", following.wait, "Wait silently until the job has ended")
      ->excludes(follow);
}

ExitCode PrintAndFollow(const Context& context, RpcClient& client, const v1::Job& job,
                        const Following& following) {
  context.Print(job, [&] { return absl::StrCat(job.name(), "\n"); });
  if (!following.follow && !following.wait) return ExitCode::kOk;
  return FollowDetachably(
      context, client, job.name(),
      following.follow ? ProgressView::StyleFor(context.quiet) : ProgressView::Style::kSilent);
}

struct ResumeOptions {
  std::string job;
  int64_t step = 0;  // 0: the newest
  Following following;
};

ExitCode Resume(const Context& context, const ResumeOptions& options, RpcClient& client) {
  v1::ResumeJobRequest request;
  request.set_name(JobName(options.job));
  if (options.step > 0) {
    request.set_checkpoint(absl::StrCat(request.name(), "/checkpoints/", options.step));
  }
  request.set_request_id(NewRequestId());
  const absl::StatusOr<v1::ResumeJobResponse> response =
      client.Call(client.jobs(), &v1::JobService::Stub::ResumeJob, request);
  if (!response.ok()) return context.Fail(response.status(), request.request_id());
  return PrintAndFollow(context, client, response->job(), options.following);
}

struct ForkOptions {
  std::string checkpoint;
  std::vector<std::string> settings;
  std::string job_id;
  Following following;
};

// The spec of the job that has the checkpoint, changed, and starting there. It exports nowhere
// unless that is asked for: where the other job exports is taken.
absl::StatusOr<v1::JobSpec> ForkedSpec(RpcClient& client, const std::string& checkpoint,
                                       const std::vector<std::string>& settings) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::Job job,
                            client.GetJob(checkpoint.substr(0, checkpoint.find("/checkpoints/"))));
  v1::JobSpec spec = job.train();
  spec.clear_output();
  spec.mutable_queue()->clear_after();
  spec.mutable_queue()->clear_after_rule();
  spec.set_start_checkpoint(checkpoint);
  return ChangeJobSpec(std::move(spec), settings);
}

ExitCode Fork(const Context& context, const ForkOptions& options, RpcClient& client) {
  v1::CreateJobRequest request;
  request.set_job_id(options.job_id);
  v1::Job job;
  const absl::Status created = WithCheckpoint(
      client, options.checkpoint, [&](const std::string& checkpoint) -> absl::Status {
        PENSTOCK_ASSIGN_OR_RETURN(*request.mutable_spec(),
                                  ForkedSpec(client, checkpoint, options.settings));
        PENSTOCK_ASSIGN_OR_RETURN(job, CreateJob(client, request));
        return absl::OkStatus();
      });
  if (!created.ok()) return context.Fail(created, request.request_id());
  return PrintAndFollow(context, client, job, options.following);
}

}  // namespace

void AddResume(CLI::App& app, Context& context) {
  auto options = std::make_shared<ResumeOptions>();
  CLI::App* command = app.add_subcommand(
      "resume",
      "Queue a paused, failed or cancelled job again, to go on from its newest checkpoint");
  command->add_option("job", options->job, "Id or name of the job")->required();
  command->add_option("--checkpoint", options->step, "Go back to the checkpoint of this step")
      ->check(CLI::PositiveNumber);
  AddFollowing(*command, options->following);
  OnConnected(*command, context,
              [&context, options](RpcClient& client) { return Resume(context, *options, client); });
}

void AddFork(CLI::App& app, Context& context) {
  auto options = std::make_shared<ForkOptions>();
  CLI::App* command = app.add_subcommand(
      "fork", "Submit a new job that starts from a checkpoint, with what --set changes");
  command
      ->add_option("checkpoint", options->checkpoint,
                   "{job}/checkpoints/{step}, or a job for its newest")
      ->required();
  command->add_option("--set", options->settings, "Set a field: optimizer.learning_rate=1e-4")
      ->allow_extra_args(false);
  command->add_option("--job-id", options->job_id, "Id of the job; the daemon makes one if absent");
  AddFollowing(*command, options->following);
  OnConnected(*command, context,
              [&context, options](RpcClient& client) { return Fork(context, *options, client); });
}

}  // namespace penstock::client
