#include "server/run_daemon.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <utility>

#include "engine/base/status.h"
#include "engine/memory/host_memory.h"
#include "google/protobuf/stubs/logging.h"
#include "server/config.h"
#include "server/daemon.h"
#include "server/notify.h"
#include "server/start_checks.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"

namespace penstock::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kExitJobsLeft = 75;
constexpr int kExitConfig = 78;
constexpr int kExitOther = 70;

int ExitCodeOf(const absl::Status& status) {
  const std::string reason = ReasonOf(status);
  const bool do_not_retry = reason == reason::kConfigInvalid || reason == reason::kSpecInvalid ||
                            reason == reason::kLockHeld || reason == reason::kStoreCorrupt;
  return do_not_retry ? kExitConfig : kExitOther;
}

int Refuse(const absl::Status& status) {
  std::fprintf(stderr, "penstockd: %s (%s)\n", std::string(status.message()).c_str(),
               ReasonOf(status).c_str());
  return ExitCodeOf(status);
}

void SetUpLog(const std::string& level) {
  auto logger = spdlog::stderr_color_mt("penstockd");
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  // It would write a line for every request with bytes that are no UTF-8, whoever sends it.
  google::protobuf::SetLogHandler([](google::protobuf::LogLevel, const char*, int,
                                     const std::string& text) { spdlog::debug("{}", text); });
}

pthread_t signal_thread;

// Async-signal-safe. Never runs in the signal thread, where the signal is blocked: it stays pending
// there.
void HandToSignalThread(int number) { pthread_kill(signal_thread, number); }

// Blocked in this thread and all that it starts, so that only the waits below see them. Threads
// that libraries started when they were loaded (OpenBLAS does) do not block them: the default
// action would end the process through one of those.
sigset_t BlockSignals() {
  constexpr int kNumbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
  signal_thread = pthread_self();
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : kNumbers) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  struct sigaction hand_over {};
  hand_over.sa_handler = HandToSignalThread;
  hand_over.sa_flags = SA_RESTART;
  for (const int number : kNumbers) sigaction(number, &hand_over, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return signals;
}

// The signal that comes within `limit`. SIGHUP asks for a reload, the others for a stop: batch
// schedulers are told to send SIGUSR1 or SIGUSR2 for that.
std::optional<int> AwaitSignal(const sigset_t& signals, std::chrono::milliseconds limit) {
  const struct timespec wait {
    .tv_sec = limit.count() / 1000, .tv_nsec = limit.count() % 1000 * 1'000'000
  };
  const int number = sigtimedwait(&signals, nullptr, &wait);
  if (number < 0) return std::nullopt;
  return number;
}

void LogDevices(const DeviceRegistry& devices) {
  for (const v1::Device& device : devices.List()) {
    spdlog::info("device {}: {} {}", device.id(), device.description(), device.health_message());
  }
  if (!devices.missing_gpus().empty()) spdlog::info("no GPU: {}", devices.missing_gpus());
}

// Unless it is configured.
int64_t InspectionMemoryBytes(int64_t host_memory_bytes) {
  return std::clamp(host_memory_bytes / 16, int64_t{1} << 30, int64_t{16} << 30);
}

const char* EnvironmentOf(const char* name) { return std::getenv(name); }

// What the machine, its cgroups and a batch scheduler leave: the least of them.
HostMemoryLimit GivenMemory() {
  const HostMemoryLimit machine = ReadHostMemoryLimit();
  const std::optional<HostMemoryLimit> slurm = SlurmMemory(EnvironmentOf);
  return slurm && slurm->usable_bytes < machine.usable_bytes ? *slurm : machine;
}

void LogLimits(const DaemonOptions& options) {
  bool has_gpu = false;
  for (const v1::Device& device : options.devices->List()) {
    has_gpu = has_gpu || device.kind() == v1::DEVICE_KIND_CUDA;
  }
  for (const std::string& warning : WarningsAbout(ReadProcessLimits(), has_gpu,
                                                  options.host_memory_bytes, options.max_streams)) {
    spdlog::warn("{}", warning);
  }
}

DaemonOptions MakeOptions(const Settings& settings, EngineHooks& hooks) {
  const internal::DaemonConfig& config = settings.config;
  const HostMemoryLimit limit = GivenMemory();
  const std::vector<std::string> roots(config.allowed_roots().begin(),
                                       config.allowed_roots().end());
  const bool configured = config.host_memory_bytes() > 0;
  DaemonOptions options;
  options.state_directory = config.state_directory();
  options.socket = config.socket();
  options.listen = config.listen();
  options.http_listen = config.http_listen();
  options.require_token = config.require_token();
  options.tls = config.tls();
  options.quotas.assign(config.quotas().begin(), config.quotas().end());
  options.calls_per_second = config.calls_per_second();
  options.allowed_roots = roots;
  options.host_memory_bytes = configured ? config.host_memory_bytes() : limit.usable_bytes;
  options.host_memory_limit_source = configured ? "host_memory_bytes of penstockd" : limit.source;
  options.max_queued_jobs = config.max_queued_jobs();
  options.max_streams = config.max_streams();
  options.max_upload_bytes = config.max_upload_bytes();
  options.worker_silence = std::chrono::seconds(config.worker_silence_seconds());
  options.aging_seconds = config.priority_aging_seconds();
  options.fair_share_half_life_seconds = config.fair_share_half_life_seconds();
  options.stream_heartbeat = std::chrono::seconds(config.stream_heartbeat_seconds());
  options.worker_binary = settings.worker_binary;
  options.devices = hooks.make_devices();
  options.capabilities = std::move(hooks.capabilities);
  options.profiles = std::make_shared<const ProfileStore>(config.state_directory() + "/profiles",
                                                          std::move(hooks.profiles));
  options.calibrate_at_start = config.calibrate_at_start();
  options.confine_workers = config.confine_workers();
  // Complete uploads may be read, and nothing written among them (JobAdmission::CheckOutputFree).
  std::vector<std::string> readable = roots;
  readable.push_back(config.state_directory() + "/uploads");
  options.planner = hooks.make_planner(readable, options.devices, options.profiles);
  options.inspector = hooks.make_inspector(readable, options.devices,
                                           config.inspection_memory_bytes() > 0
                                               ? config.inspection_memory_bytes()
                                               : InspectionMemoryBytes(options.host_memory_bytes));
  options.output_checker = hooks.make_output_checker(roots);
  return options;
}

// Returns when no job has a worker any more, the time is over, or somebody who was waiting presses
// Ctrl-C. A second SIGTERM is no such wish: schedulers send it to every process of a job, so that
// it comes once from them and once from the program that started this one.
void WaitForJobs(Daemon& daemon, std::chrono::seconds limit, const sigset_t& signals) {
  const auto deadline = Clock::now() + limit;
  while (daemon.CountJobs().running > 0 && Clock::now() < deadline) {
    NotifyServiceManager("EXTEND_TIMEOUT_USEC=10000000");
    if (AwaitSignal(signals, std::chrono::milliseconds(200)) == SIGINT) {
      spdlog::info("interrupted: not waiting any longer");
      return;
    }
  }
}

void Reload(Daemon& daemon) {
  using std::chrono::microseconds;
  // steady_clock is CLOCK_MONOTONIC.
  const auto now = std::chrono::duration_cast<microseconds>(Clock::now().time_since_epoch());
  NotifyServiceManager(ReloadingState(now));
  daemon.CheckCertificate();
  NotifyServiceManager("READY=1");
}

void AwaitStop(Daemon& daemon, const sigset_t& signals) {
  while (true) {
    const std::optional<int> number = AwaitSignal(signals, std::chrono::hours(1));
    if (number && *number != SIGHUP) return;
    if (number) Reload(daemon);
  }
}

}  // namespace

int RunDaemon(int argc, char** argv, EngineHooks hooks) {
  const absl::StatusOr<ParsedCommandLine> parsed = ParseCommandLine(argc, argv);
  if (!parsed.ok()) return Refuse(parsed.status());
  if (parsed->exits) return parsed->exit_code;
  const Settings& settings = parsed->settings;
  SetUpLog(settings.config.log_level());
  const sigset_t signals = BlockSignals();
  if (geteuid() == 0) {
    spdlog::warn("running as root: jobs read and write files as root; use an ordinary user");
  }

  DaemonOptions options = MakeOptions(settings, hooks);
  LogDevices(*options.devices);
  LogLimits(options);
  absl::StatusOr<std::unique_ptr<Daemon>> started = Daemon::Start(std::move(options));
  if (!started.ok()) return Refuse(started.status());
  Daemon& daemon = **started;
  spdlog::info("penstockd serves on {} {} {}", daemon.socket(), daemon.tcp_address(),
               daemon.http_address());
  if (!daemon.tcp_address().empty() && daemon.lets_in_strangers()) {
    spdlog::warn("every user of this machine can submit jobs to {}", daemon.tcp_address());
  }
  NotifyServiceManager("READY=1");

  AwaitStop(daemon, signals);
  spdlog::info("stopping");
  NotifyServiceManager("STOPPING=1");
  daemon.BeginDrain(settings.on_terminate == OnTerminate::kSave ? OnDrain::kSave : OnDrain::kRunOn);
  if (settings.on_terminate != OnTerminate::kLeave) {
    WaitForJobs(daemon, std::chrono::seconds(settings.config.drain_seconds()), signals);
  }
  const Daemon::JobCounts left = daemon.CountJobs();
  daemon.Stop();
  if (left.left == 0) return 0;
  spdlog::info("{} jobs left, {} of them running; the next penstockd goes on with them", left.left,
               left.running);
  return kExitJobsLeft;
}

}  // namespace penstock::server
