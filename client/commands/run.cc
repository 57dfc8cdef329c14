// penstock run job.yaml: one job, start to end, with a daemon of its own. For laptops, containers
// and batch schedulers.
//
// SIGTERM (a scheduler's preemption, the end of a container) is passed on to the daemon, which has
// the job save its last finished step; the exit code is then 75, "requeue", and the same command
// with the same --state-dir goes on where it was. In a Slurm job it has itself queued again, so
// that this holds where the site does not know the code. Ctrl-C cancels the job, which saves too. A
// state directory of our own making is removed only if nothing is lost with it: the job succeeded
// and its model was exported.

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
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
#include "client/output.h"
#include "client/private_daemon.h"
#include "client/run_directory.h"
#include "client/slurm.h"
#include "engine/base/status.h"

namespace penstock::client {
namespace {

constexpr absl::Duration kStartLimit = absl::Seconds(60);

enum class OnPreempt : uint8_t {
  kRequeue,  // ask Slurm for it, where this is a job of Slurm's
  kExit,     // leave it to who reads the exit code
};

struct RunOptions {
  std::string file;
  std::vector<std::string> settings;
  std::string state_directory;
  int32_t grace_seconds = 600;
  OnPreempt on_preempt = OnPreempt::kRequeue;
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

// Ctrl-C cancels the job; SIGTERM stops the daemon, which has it save. Further signals change
// nothing: schedulers send theirs to each process, and more than once.
class SignalHandling {
 public:
  SignalHandling(RpcClient& client, PrivateDaemon& daemon, const InterruptGuard& interrupts)
      : client_(client), daemon_(daemon), interrupts_(interrupts) {}

  // False once the daemon has ended and the job's end will not come.
  bool Check(const std::string& job, ProgressView& view) {
    if (interrupts_.first() != Interrupt::kNone && !handled_) {
      handled_ = true;
      if (interrupts_.first() == Interrupt::kTerminate) {
        view.Announce(absl::StrCat("SIGTERM: ", job, " saves a checkpoint first"));
        daemon_.Terminate();
      } else {
        CancelForSignal(client_, job, view);
      }
    }
    return !daemon_.HasEnded();
  }

 private:
  RpcClient& client_;
  PrivateDaemon& daemon_;
  const InterruptGuard& interrupts_;
  bool handled_ = false;
};

// Slurm's own timer is coarse: signals were seen to come half a minute late.
constexpr double kSlurmMarginSeconds = 60;

// Says which --signal a job needs whose checkpoints took as long as those of earlier starts.
void AdviseSlurm(RpcClient& client) {
  if (!SlurmJobId(GetProcessEnvironment)) return;
  const auto info = client.Call(client.admin(), &v1::AdminService::Stub::GetServerInfo,
                                v1::GetServerInfoRequest());
  if (!info.ok() || info->checkpoint_seconds() <= 0) return;
  const auto lead =
      static_cast<int64_t>(std::ceil(info->checkpoint_seconds() + kSlurmMarginSeconds));
  PrintTalk(absl::StrCat("a checkpoint took up to ", std::ceil(info->checkpoint_seconds()),
                         " s here: --signal=B:TERM@", lead,
                         ", plus the seconds of a step, leaves time for it\n"));
}

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

// Starts a daemon, runs the job, stops the daemon.
ExitCode RunInDirectory(const Context& context, const RunOptions& options, const v1::JobSpec& spec,
                        const InterruptGuard& interrupts) {
  const absl::StatusOr<std::string> program = FindDaemon();
  if (!program.ok()) return context.Fail(program.status());
  const absl::StatusOr<std::unique_ptr<RunDirectory>> directory =
      RunDirectory::Create(options.state_directory);
  if (!directory.ok()) return context.Fail(directory.status());
  if (absl::Status free = (*directory)->CheckFree(); !free.ok()) return context.Fail(free);
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
  if (!serving.ok()) {
    // Of two that were started at one moment, one daemon had to give way.
    const absl::Status free = (*directory)->CheckFree();
    return context.Fail(free.ok() ? serving : free);
  }
  RpcClient client((*daemon)->endpoint(), absl::Seconds(context.timeout_seconds));
  AdviseSlurm(client);
  const ExitCode code = RunJob(context, client, spec, interrupts, **daemon, **directory);
  (*daemon)->Stop();
  return code;
}

void RequeueInSlurm() {
  const std::optional<std::string> job = SlurmJobId(GetProcessEnvironment);
  if (!job) return;
  const absl::StatusOr<Requeued> requeued = RequeueSlurmJob(*job);
  if (!requeued.ok()) {
    PrintTalk(absl::StrCat("Slurm job ", *job, " could not be queued again: ",
                           std::string(requeued.status().message()), "\n"));
  } else if (*requeued == Requeued::kYes) {
    PrintTalk(absl::StrCat("Slurm job ", *job, " is queued again\n"));
  }
}

ExitCode Run(const Context& context, const RunOptions& options) {
  const absl::StatusOr<v1::JobSpec> spec = LoadJobFile(options.file, options.settings);
  if (!spec.ok()) return FailToLoad(context, spec.status());
  const InterruptGuard interrupts;
  const ExitCode code = RunInDirectory(context, options, *spec, interrupts);
  // Now the directory is free for the job's next start.
  if (code == ExitCode::kTryAgain && interrupts.first() == Interrupt::kTerminate &&
      options.on_preempt == OnPreempt::kRequeue) {
    RequeueInSlurm();
  }
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
  const std::map<std::string, OnPreempt> preempt{{"requeue", OnPreempt::kRequeue},
                                                 {"exit", OnPreempt::kExit}};
  command
      ->add_option(
          "--on-preempt", options->on_preempt,
          "After SIGTERM, in a job of Slurm: requeue has it queued again, exit leaves that to "
          "the exit code, 75 (RequeueExit in slurm.conf)")
      ->transform(CLI::CheckedTransformer(preempt).description("requeue|exit"))
      ->default_str("requeue");
  command->callback([&context, options] { context.exit_code = Run(context, *options); });
}

}  // namespace penstock::client
