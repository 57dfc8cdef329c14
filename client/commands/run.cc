// penstock run job.yaml: one job, start to end, with a daemon of its own. For laptops and batch
// schedulers.
//
// SIGTERM (a scheduler's preemption) and Ctrl-C cancel the job, which saves a checkpoint of its
// last finished step; SIGTERM then exits with 75, "requeue". A state directory of our own making is
// removed only if nothing is lost with it: the job succeeded and its model was exported.

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
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
#include "client/job_file.h"
#include "client/private_daemon.h"
#include "engine/base/status.h"

namespace penstock::client {
namespace {

constexpr absl::Duration kStartLimit = absl::Seconds(60);
constexpr absl::Duration kStopLimit = absl::Seconds(30);

struct RunOptions {
  std::string file;
  std::vector<std::string> settings;
  std::string state_directory;
};

// A directory for the daemon's state: the one asked for, or a temporary one, removed unless kept.
class StateDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<StateDirectory>> Create(const std::string& wanted) {
    if (!wanted.empty()) {
      const std::filesystem::path path = AbsolutePath(wanted);
      std::error_code error;
      std::filesystem::create_directories(path.parent_path(), error);
      if (error) return Failure(wanted, error.message());
      // The daemon takes no directory that others can look into.
      if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
        return Failure(wanted, std::strerror(errno));
      }
      return std::unique_ptr<StateDirectory>(new StateDirectory(path.string(), Kind::kGiven));
    }
    // Short: the path of a unix socket lies beneath and has 107 bytes at most.
    std::string pattern =
        absl::StrCat(GetProcessEnvironment("TMPDIR").value_or("/tmp"), "/penstock-run-XXXXXX");
    if (mkdtemp(pattern.data()) == nullptr) return Failure(pattern, "cannot be created");
    return std::unique_ptr<StateDirectory>(new StateDirectory(pattern, Kind::kTemporary));
  }
  ~StateDirectory() {
    std::error_code ignored;
    if (kind_ == Kind::kTemporary) std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  void Keep() {
    if (std::exchange(kind_, Kind::kGiven) == Kind::kTemporary) {
      PrintTalk(absl::StrCat("log and checkpoints are kept in ", path_, "\n"));
    }
  }

 private:
  enum class Kind : uint8_t { kGiven, kTemporary };
  StateDirectory(std::string path, Kind kind) : path_(std::move(path)), kind_(kind) {}

  static absl::Status Failure(const std::string& path, const std::string& what) {
    return Error(absl::StatusCode::kUnavailable, reason::kIoError,
                 absl::StrCat("--state-dir ", path, ": ", what));
  }

  const std::string path_;
  Kind kind_;
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

bool CancelForSignal(RpcClient& client, const std::string& name, Interrupt interrupt) {
  v1::CancelJobRequest request;
  request.set_name(name);
  request.set_request_id(NewRequestId());
  const absl::StatusOr<v1::CancelJobResponse> response =
      client.Call(client.jobs(), &v1::JobService::Stub::CancelJob, request);
  PrintTalk(absl::StrCat(interrupt == Interrupt::kTerminate ? "SIGTERM" : "interrupted",
                         ": cancelling ", name, ", it saves a checkpoint first\n"));
  if (!response.ok()) {
    PrintTalk(
        absl::StrCat("cannot cancel: ", Printable(std::string(response.status().message())), "\n"));
  }
  return true;  // the job's end is still to come
}

ExitCode RunJob(const Context& context, RpcClient& client, const v1::JobSpec& spec,
                const InterruptGuard& interrupts, StateDirectory& state) {
  v1::CreateJobRequest request;
  *request.mutable_spec() = spec;
  const absl::StatusOr<v1::Job> created = CreateJob(context, client, std::move(request));
  if (!created.ok()) return ExitCodeOf(created.status());
  const std::string name = created->name();
  const FollowJobOptions options{.style = ProgressView::StyleFor(context.quiet),
                                 .on_interrupt = [&](Interrupt interrupt) {
                                   return CancelForSignal(client, name, interrupt);
                                 }};
  ExitCode code = FollowJob(context, client, name, interrupts, options);
  const absl::StatusOr<v1::Job> job = client.GetJob(name);
  if (!job.ok() || code != ExitCode::kOk || spec.output().directory().empty()) state.Keep();
  if (job.ok() && context.format != Format::kTable) {
    PrintData(FormatMessage(context.format, *job));
  }
  if (code == ExitCode::kCancelled && interrupts.first() == Interrupt::kTerminate) {
    code = ExitCode::kTryAgain;
  }
  return code;
}

ExitCode Run(const Context& context, const RunOptions& options) {
  const absl::StatusOr<v1::JobSpec> spec = LoadJobFile(options.file, options.settings);
  if (!spec.ok()) return FailToLoad(context, spec.status());
  const absl::StatusOr<std::string> program = FindDaemon();
  if (!program.ok()) return context.Fail(program.status());
  const InterruptGuard interrupts;
  const absl::StatusOr<std::unique_ptr<StateDirectory>> state =
      StateDirectory::Create(options.state_directory);
  if (!state.ok()) return context.Fail(state.status());
  const absl::StatusOr<std::unique_ptr<PrivateDaemon>> daemon =
      PrivateDaemon::Start(*program, (*state)->path());
  if (!daemon.ok()) return context.Fail(daemon.status());
  const absl::Status serving = WaitUntilServing(**daemon, interrupts);
  if (absl::IsCancelled(serving)) return ExitCode::kTryAgain;
  if (!serving.ok()) return context.Fail(serving);
  RpcClient client((*daemon)->endpoint(), absl::Seconds(context.timeout_seconds));
  const ExitCode code = RunJob(context, client, *spec, interrupts, **state);
  (*daemon)->Stop(kStopLimit);
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
                      "Keep log, metrics and checkpoints here; absent: a temporary directory");
  command->callback([&context, options] { context.exit_code = Run(context, *options); });
}

}  // namespace penstock::client
