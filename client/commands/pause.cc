#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/follow.h"
#include "client/job_text.h"

namespace penstock::client {
namespace {

struct PauseOptions {
  std::string job;
  bool wait = false;
};

// Until the job is PAUSED, or has ended before it could be. What is told of earlier attempts, which
// may have been paused too, does not count.
absl::StatusOr<v1::Job> WaitUntilPaused(RpcClient& client, v1::Job job) {
  const int32_t attempt = job.attempt();
  v1::WatchJobsRequest request;
  request.set_name(job.name());
  request.set_follow(true);
  request.add_kinds(v1::WATCH_KIND_STATE);
  const FollowHandlers handlers{.on_event =
                                    [&](const v1::WatchJobsResponse& event) {
                                      if (!event.has_state_changed()) return;
                                      const v1::Job& now = event.state_changed().job();
                                      if (now.attempt() >= attempt) job = now;
                                    },
                                .on_tick = [&] { return job.state() != v1::JOB_STATE_PAUSED; },
                                .on_lost = [](const absl::Status&) {}};
  const absl::StatusOr<std::optional<v1::Job>> end = Follow(client, std::move(request), handlers);
  if (!end.ok()) return end.status();
  return end->has_value() ? **end : job;
}

ExitCode Pause(const Context& context, const PauseOptions& options, RpcClient& client) {
  v1::PauseJobRequest request;
  request.set_name(JobName(options.job));
  request.set_request_id(NewRequestId());
  const absl::StatusOr<v1::PauseJobResponse> response =
      client.Call(client.jobs(), &v1::JobService::Stub::PauseJob, request);
  if (!response.ok()) return context.Fail(response.status(), request.request_id());
  absl::StatusOr<v1::Job> job = response->job();
  if (options.wait && job->state() != v1::JOB_STATE_PAUSED)
    job = WaitUntilPaused(client, *std::move(job));
  if (!job.ok()) return context.Fail(job.status());
  context.Print(*job, [&] { return absl::StrCat(StateText(*job), "\n"); });
  return !options.wait || job->state() == v1::JOB_STATE_PAUSED ? ExitCode::kOk : ExitCodeOf(*job);
}

}  // namespace

void AddPause(CLI::App& app, Context& context) {
  auto options = std::make_shared<PauseOptions>();
  CLI::App* command = app.add_subcommand(
      "pause", "Make a job save, give its device back and wait for `penstock resume`");
  command->add_option("job", options->job, "Id or name of the job")->required();
  command->add_flag("--wait", options->wait, "Wait until it is paused");
  OnConnected(*command, context,
              [&context, options](RpcClient& client) { return Pause(context, *options, client); });
}

}  // namespace penstock::client
