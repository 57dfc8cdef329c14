#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/follow_job.h"
#include "client/job_text.h"

namespace penstock::client {
namespace {

struct CancelOptions {
  std::string job;
  bool wait = false;
};

ExitCode Cancel(const Context& context, const CancelOptions& options, RpcClient& client) {
  v1::CancelJobRequest request;
  request.set_name(JobName(options.job));
  request.set_request_id(NewRequestId());
  const absl::StatusOr<v1::CancelJobResponse> response =
      client.Call(client.jobs(), &v1::JobService::Stub::CancelJob, request);
  if (!response.ok()) return context.Fail(response.status(), request.request_id());
  context.Print(response->job(), [&] { return absl::StrCat(StateText(response->job()), "\n"); });
  // A job that only waited has ended with the answer.
  if (!options.wait || HasEnded(response->job())) return ExitCode::kOk;
  const ExitCode code =
      FollowDetachably(context, client, response->job().name(), ProgressView::Style::kSilent);
  return code == ExitCode::kCancelled ? ExitCode::kOk : code;
}

}  // namespace

void AddCancel(CLI::App& app, Context& context) {
  auto options = std::make_shared<CancelOptions>();
  CLI::App* command =
      app.add_subcommand("cancel", "Cancel a job; a running one saves a checkpoint first");
  command->add_option("job", options->job, "Id or name of the job")->required();
  command->add_flag("--wait", options->wait, "Wait until the job has ended");
  OnConnected(*command, context,
              [&context, options](RpcClient& client) { return Cancel(context, *options, client); });
}

}  // namespace penstock::client
