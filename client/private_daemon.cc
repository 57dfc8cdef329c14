#include "client/private_daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "penstock/internal/config.pb.h"
#include "proto/message_print.h"

namespace penstock::client {
namespace {

constexpr size_t kMaxLineBytes = 2000;
// What the daemon itself needs to stop, beside its jobs.
constexpr absl::Duration kStopMargin = absl::Seconds(20);

absl::Status StartError(const std::string& what) {
  return Error(absl::StatusCode::kUnavailable, reason::kServerUnreachable,
               absl::StrCat("cannot start a private penstockd: ", what));
}

// Any path of this user's is as good as another: the daemon runs for this user alone.
absl::StatusOr<std::string> WriteConfig(const PrivateDaemonArgs& args) {
  internal::DaemonConfig config;
  config.set_state_directory(args.state_directory);
  config.set_drain_seconds(args.grace_seconds);
  config.add_allowed_roots(std::string("/"));
  config.set_calibrate_at_start(false);  // one job would wait a minute for it
  const std::string path = absl::StrCat(args.state_directory, "/penstockd.yaml");
  std::ofstream file(path, std::ios::trunc);
  file << MessageToYaml(config);
  file.close();
  if (!file) return StartError(absl::StrCat(path, ": cannot be written"));
  return path;
}

// In the child: only async-signal-safe calls. A session of its own, so that Ctrl-C at the terminal
// reaches the command line alone, which then cancels the job in good order.
[[noreturn]] void ExecDaemon(const char* daemon, const char* config, int log, pid_t parent) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);  // the parent died before prctl
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) {
    sigaction(number, &standard, nullptr);
  }
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execl(daemon, daemon, "--config", config, static_cast<char*>(nullptr));
  _exit(127);
}

}  // namespace

absl::StatusOr<std::string> FindDaemon() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return StartError(absl::StrCat("/proc/self/exe: ", error.message()));
  const std::string path = absl::StrCat(self.parent_path().string(), "/penstockd");
  if (access(path.c_str(), X_OK) != 0) {
    return StartError(absl::StrCat(path, ": ", std::strerror(errno),
                                   "; it must lie beside the penstock program"));
  }
  return path;
}

PrivateDaemon::PrivateDaemon(pid_t pid, const PrivateDaemonArgs& args)
    : pid_(pid),
      state_directory_(args.state_directory),
      stop_limit_(absl::Seconds(args.grace_seconds) + kStopMargin) {}

absl::StatusOr<std::unique_ptr<PrivateDaemon>> PrivateDaemon::Start(const PrivateDaemonArgs& args) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string config, WriteConfig(args));
  const std::string log_path = absl::StrCat(args.state_directory, "/penstockd.log");
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log < 0) return StartError(absl::StrCat(log_path, ": ", std::strerror(errno)));
  const pid_t self = getpid();
  const pid_t pid = fork();
  if (pid == 0) ExecDaemon(args.program.c_str(), config.c_str(), log, self);
  close(log);
  if (pid < 0) return StartError(absl::StrCat("fork: ", std::strerror(errno)));
  return std::unique_ptr<PrivateDaemon>(new PrivateDaemon(pid, args));
}

PrivateDaemon::~PrivateDaemon() { Stop(); }

Endpoint PrivateDaemon::endpoint() const {
  return {.target = absl::StrCat("unix:", state_directory_, "/penstock.sock"),
          .source = "the private daemon"};
}

bool PrivateDaemon::HasEnded() {
  if (pid_ == 0) return true;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
  pid_ = 0;
  return true;
}

absl::Status PrivateDaemon::CheckAlive() {
  if (!HasEnded()) return absl::OkStatus();
  std::ifstream file(absl::StrCat(state_directory_, "/penstockd.log"));
  std::string line, last;
  while (std::getline(file, line)) {
    if (!line.empty()) last = line.substr(0, kMaxLineBytes);
  }
  return Error(absl::StatusCode::kFailedPrecondition, reason::kServerUnreachable,
               absl::StrCat("the private penstockd has ended: ", last));
}

void PrivateDaemon::Terminate() {
  if (HasEnded()) return;
  terminated_ = true;
  kill(pid_, SIGTERM);
}

void PrivateDaemon::Stop() {
  if (!terminated_) Terminate();
  const absl::Time deadline = absl::Now() + stop_limit_;
  while (!HasEnded()) {
    if (absl::Now() >= deadline) kill(pid_, SIGKILL);
    absl::SleepFor(absl::Milliseconds(20));
  }
}

}  // namespace penstock::client
