// penstock run job.yaml: one job, start to end, with a daemon of its own. For laptops, containers
// and batch schedulers.
//
// SIGTERM (a scheduler's preemption, the end of a container) is passed on to the daemon, which has
// the job save its last finished step; the exit code is then 75, "requeue", and the same command
// with the same --state-dir goes on where it was. Ctrl-C cancels the job, which saves too. A state
// directory of our own making is removed only if nothing is lost with it: the job succeeded and its
// model was exported.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/commands/commands.h"
#include "client/commands/follow_job.h"
#include "client/commands/submit_job.h"
#include "client/commands/take_up_job.h"
#include "client/interrupts.h"
#include "client/job_file.h"
#include "client/private_daemon.h"
#include "client/run_directory.h"
#include "engine/base/status.h"

namespace penstock::client {
namespace {

constexpr absl::Duration kStartLimit = absl::Seconds(60);

struct RunOptions {
  std::string file;
  std::vector<std::string> settings;
  std::string state_directory;
  int32_t grace_seconds = 600;
};

// Cancelled if a signal came first.
absl::Status WaitUntilServing(PrivateDaemon& daemon, const InterruptGuard& interrupts) {
  RpcClient probe(daemon.endpoint(), absl::Seconds(1));
  const absl::Time deadline = absl::Now() + kStartLimit;
  while (true) {
    const auto info = probe.Call(probe.admin(), &v1::AdminService::Stub::GetServerInfo,
                                 v1::GetServerInfoRequest());
    if (info.ok()) return absl::OkStatus();
    PENSTOCK_RETURN_IF_ERROR(daemon.CheckAlive());
    if (interrupts.first() != Interrupt::kNone) return absl::CancelledError("interrupted");
    if (absl::Now() >= deadline) return info.status();
    absl::SleepFor(absl::Milliseconds(50));
  }
}

void CancelForSignal(RpcClient& client, const std::string& name, ProgressView& view) {
  v1::CancelJobRequest request;
  request.set_name(name);
  request.set_request_id(NewRequestId());
  const absl::StatusOr<v1::CancelJobResponse> response =
      client.Call(client.jobs(), &v1::JobService::Stub::CancelJob, request);
  view.Announce(absl::StrCat("interrupted: cancelling ", name, ", it saves a checkpoint first"));
  if (!response.ok()) {
    view.Announce(absl::StrCat("cannot cancel: ", std::string(response.status().message())));
  }
}

// Ctrl-C cancels the job; SIGTERM, and every one after it, goes to the daemon.
class SignalHandling {
 public:
  SignalHandling(RpcClient& client, PrivateDaemon& daemon, const InterruptGuard& interrupts)
      : client_(client), daemon_(daemon), interrupts_(interrupts) {}

  // False once the daemon has ended and the job's end will not come.
  bool Check(const std::string& job, ProgressView& view) {
    const int count = interrupts_.count();
    if (count > handled_ && interrupts_.first() == Interrupt::kTerminate) {
      if (handled_ == 0) view.Announce(absl::StrCat("SIGTERM: ", job, " saves a checkpoint first"));
      daemon_.Terminate();
    } else if (count > handled_ && handled_ == 0) {
      CancelForSignal(client_, job, view);
    }
    handled_ = count;
    return !daemon_.HasEnded();
  }

 private:
  RpcClient& client_;
  PrivateDaemon& daemon_;
  const InterruptGuard& interrupts_;
  int handled_ = 0;
};

// What it means that the daemon has ended before it could tell the end of the job.
ExitCode AfterDaemonEnd(const Context& context, PrivateDaemon& daemon,
                        const InterruptGuard& interrupts) {
  if (interrupts.first() == Interrupt::kNone) context.Fail(daemon.CheckAlive());
  PrintTalk("stopped with work left: run the same command again to go on\n");
  return ExitCode::kTryAgain;
}

ExitCode RunJob(const Context& context, RpcClient& client, const v1::JobSpec& spec,
                const InterruptGuard& interrupts, PrivateDaemon& daemon, RunDirectory& directory) {
  const absl::StatusOr<v1::Job> taken = TakeUpJob(context, client, spec);
  if (!taken.ok()) {
    if (interrupts.first() == Interrupt::kTerminate) return ExitCode::kTryAgain;
    return ExitCodeOf(taken.status());
  }
  SignalHandling signals(client, daemon, interrupts);
  const FollowJobOptions options{
      .style = ProgressView::StyleFor(context.quiet),
      .go_on = [&](ProgressView& view) { return signals.Check(taken->name(), view); }};
  const FollowEnd end = FollowJob(context, client, taken->name(), options);
  const ExitCode code = end.left() ? AfterDaemonEnd(context, daemon, interrupts) : end.code;
  if (code != ExitCode::kOk || spec.output().directory().empty()) directory.Keep();
  if (end.job && context.format != Format::kTable) {
    PrintData(FormatMessage(context.format, *end.job));
  }
  return code;
}

ExitCode Run(const Context& context, const RunOptions& options) {
  const absl::StatusOr<v1::JobSpec> spec = LoadJobFile(options.file, options.settings);
  if (!spec.ok()) return FailToLoad(context, spec.status());
  const absl::StatusOr<std::string> program = FindDaemon();
  if (!program.ok()) return context.Fail(program.status());
  const InterruptGuard interrupts;
  const absl::StatusOr<std::unique_ptr<RunDirectory>> directory =
      RunDirectory::Create(options.state_directory);
  if (!directory.ok()) return context.Fail(directory.status());
  const absl::StatusOr<std::unique_ptr<PrivateDaemon>> daemon =
      PrivateDaemon::Start({.program = *program,
                            .state_directory = (*directory)->path(),
                            .grace_seconds = options.grace_seconds});
  if (!daemon.ok()) return context.Fail(daemon.status());
  const absl::Status serving = WaitUntilServing(**daemon, interrupts);
  if (absl::IsCancelled(serving)) {
    (*daemon)->Stop();
    return ExitCode::kTryAgain;
  }
  if (!serving.ok()) return context.Fail(serving);
  RpcClient client((*daemon)->endpoint(), absl::Seconds(context.timeout_seconds));
  const ExitCode code = RunJob(context, client, *spec, interrupts, **daemon, **directory);
  (*daemon)->Stop();
  return code;
}

}  // namespace

void AddRun(CLI::App& app, Context& context) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand(
      "run", "Run one job with a private daemon, from start to end; for laptops and schedulers");
  command->add_option("file", options->file, "Job file, YAML or JSON; - reads standard input")
      ->required();
  command->add_option("--set", options->settings, "Set a field: optimizer.learning_rate=1e-4")
      ->allow_extra_args(false);
  command->add_option("--state-dir", options->state_directory,
                      "Keep log, metrics and checkpoints here, and go on with what is there; "
                      "absent: a temporary directory");
  command
      ->add_option("--grace", options->grace_seconds,
                   "Seconds that the job gets to save its last step after SIGTERM")
      ->check(CLI::Range(0, 604'800))
      ->capture_default_str();
  command->callback([&context, options] { context.exit_code = Run(context, *options); });
}

}  // namespace penstock::client
