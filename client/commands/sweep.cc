#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/submit_job.h"
#include "client/job_file.h"
#include "client/job_text.h"

namespace penstock::client {
namespace {

struct SubmitOptions {
  std::string file;
  std::vector<std::string> over;
  std::vector<std::string> settings;
  std::string sweep_id;
  bool validate_only = false;
};

ExitCode Submit(const Context& context, const SubmitOptions& options, RpcClient& client) {
  absl::StatusOr<v1::SweepSpec> spec = LoadSweepFile(options.file, options.over, options.settings);
  if (!spec.ok()) return FailToLoad(context, spec.status());
  v1::CreateSweepRequest request;
  *request.mutable_spec() = *std::move(spec);
  request.set_sweep_id(options.sweep_id);
  request.set_validate_only(options.validate_only);
  request.set_request_id(NewRequestId());
  const absl::StatusOr<v1::CreateSweepResponse> response =
      client.Call(client.jobs(), &v1::JobService::Stub::CreateSweep, request);
  if (!response.ok()) return context.Fail(response.status(), request.request_id());
  for (const v1::SweepJob& job : response->jobs()) {
    for (const std::string& warning : job.warnings()) {
      PrintTalk(absl::StrCat("warning: ", job.name(), ": ", Printable(warning), "\n"));
    }
  }
  if (!context.quiet && !response->name().empty()) {
    PrintTalk(absl::StrCat(response->name(), ": ", response->jobs_size(), " jobs\n"));
  }
  return context.Print(*response, [&] { return SweepTable(*response); });
}

ExitCode Cancel(const Context& context, const std::string& sweep, RpcClient& client) {
  v1::CancelSweepRequest request;
  request.set_name(SweepName(sweep));
  request.set_request_id(NewRequestId());
  const absl::StatusOr<v1::CancelSweepResponse> response =
      client.Call(client.jobs(), &v1::JobService::Stub::CancelSweep, request);
  if (!response.ok()) return context.Fail(response.status(), request.request_id());
  return context.Print(*response, [&] {
    std::string names;
    for (const std::string& job : response->jobs()) absl::StrAppend(&names, job, "\n");
    return names;
  });
}

void AddSweepSubmit(CLI::App& sweep, Context& context) {
  auto options = std::make_shared<SubmitOptions>();
  CLI::App* const submit = sweep.add_subcommand("submit", "Submit a job for every point of a grid");
  submit
      ->add_option("file", options->file,
                   "Job file, with --over; else sweep file: job and axes. - reads standard input")
      ->required();
  submit
      ->add_option(
          "--over", options->over,
          "An axis: optimizer.learning_rate=1e-5,3e-5; repeatable, the last changes fastest")
      ->allow_extra_args(false);
  submit->add_option("--set", options->settings, "Set a field of all jobs: schedule.max_steps=100")
      ->allow_extra_args(false);
  submit->add_option("--sweep-id", options->sweep_id,
                     "Id of the sweep; the daemon makes one if absent");
  submit->add_flag("--validate-only", options->validate_only,
                   "Check and plan the jobs and print them; submit nothing");
  OnConnected(*submit, context,
              [&context, options](RpcClient& client) { return Submit(context, *options, client); });
}

void AddSweepCancel(CLI::App& sweep, Context& context) {
  auto name = std::make_shared<std::string>();
  CLI::App* const cancel =
      sweep.add_subcommand("cancel", "Cancel those of its jobs that have not ended");
  cancel->add_option("sweep", *name, "Id or name of the sweep")->required();
  OnConnected(*cancel, context,
              [&context, name](RpcClient& client) { return Cancel(context, *name, client); });
}

}  // namespace

void AddSweep(CLI::App& app, Context& context) {
  CLI::App* const sweep = app.add_subcommand("sweep", "One job over a grid of values");
  sweep->require_subcommand(1);
  AddSweepSubmit(*sweep, context);
  AddSweepCancel(*sweep, context);
}

}  // namespace penstock::client
