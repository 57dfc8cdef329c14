#include "tests/load/daemon_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "penstock/v1/admin_service.grpc.pb.h"

extern char** environ;

namespace penstock::load {
namespace {

constexpr int kStartSeconds = 120;

// Workers are children of nobody once the daemon is dead; their command line names the directory.
void KillProcessesOf(const std::string& directory) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const int pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 1 || pid == getpid()) continue;
    std::ifstream file(entry.path() / "cmdline");
    std::stringstream text;
    text << file.rdbuf();
    if (text.str().find(directory + "/") != std::string::npos) kill(pid, SIGKILL);
  }
}

}  // namespace

DaemonProcess::DaemonProcess(DaemonArgs args) : args_(std::move(args)) {
  std::string pattern = "/tmp/penstock-load-XXXXXX";  // short: sockets lie in it
  directory_ = mkdtemp(pattern.data());
  worker_ = args_.bin + "/penstock-worker";
  if (args_.worker_cpus.empty()) return;
  const std::string pinned = directory_ + "/worker";
  std::ofstream(pinned) << "#!/bin/sh\nexec taskset -c " << args_.worker_cpus << " " << worker_
                        << " \"$@\"\n";
  chmod(pinned.c_str(), 0700);
  worker_ = pinned;
}

DaemonProcess::~DaemonProcess() {
  Kill();
  KillProcessesOf(directory_);
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

absl::Status DaemonProcess::Start() {
  std::vector<std::string> words;
  if (!args_.daemon_cpus.empty()) words = {"taskset", "-c", args_.daemon_cpus};
  words.insert(words.end(),
               {args_.bin + "/penstockd", "--state-directory", state(), "--allowed-root",
                args_.allowed_root, "--worker-binary", worker_, "--max-streams",
                absl::StrCat(args_.max_streams), "--log-level", "warning", "--no-calibration"});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, (directory_ + "/log").c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  const int failed = posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return absl::InternalError(absl::StrCat("cannot start ", words[0]));

  for (const time_t end = time(nullptr) + kStartSeconds; time(nullptr) < end;) {
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = 0;
      std::ifstream log(directory_ + "/log");
      std::stringstream text;
      text << log.rdbuf();
      return absl::InternalError(absl::StrCat("penstockd has ended: ", text.str()));
    }
    grpc::ClientContext context;
    // A thousand watchers that come back are let in first.
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    v1::GetServerInfoResponse info;
    // A new connection each time: one that has failed waits before it is tried again.
    if (v1::AdminService::NewStub(Connect())->GetServerInfo(&context, {}, &info).ok())
      return absl::OkStatus();
    usleep(20'000);
  }
  return absl::DeadlineExceededError("penstockd does not answer");
}

void DaemonProcess::Kill() {
  if (pid_ == 0) return;
  cpu_seconds_before_ = Use().cpu_seconds;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

ProcessUse UseOf(pid_t pid) {
  ProcessUse use;
  std::ifstream stat(absl::StrCat("/proc/", pid, "/stat"));
  std::string field;
  // Field 2, the name, holds no blank. 14 and 15 are ticks, 24 pages.
  for (int i = 1; i <= 24 && stat >> field; ++i) {
    const double value = std::strtod(field.c_str(), nullptr);
    if (i == 14 || i == 15) use.cpu_seconds += value / static_cast<double>(sysconf(_SC_CLK_TCK));
    if (i == 24) use.resident_bytes = static_cast<int64_t>(value) * sysconf(_SC_PAGESIZE);
  }
  return use;
}

ProcessUse DaemonProcess::Use() const {
  ProcessUse use = UseOf(pid_);
  use.cpu_seconds += cpu_seconds_before_;
  return use;
}

std::shared_ptr<grpc::Channel> DaemonProcess::Connect() const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 20'000);  // what connecting may take
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  return grpc::CreateCustomChannel("unix:" + state() + "/penstock.sock",
                                   grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace penstock::load
