#include "server/jobs/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace penstock::server {
namespace {

int PidfdOpen(int32_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

absl::Status SystemError(const std::string& what, int error) {
  return Error(absl::StatusCode::kUnavailable, reason::kIoError,
               absl::StrCat(what, ": ", std::strerror(error)));
}

// File actions and attributes of posix_spawn, destroyed in any case.
class SpawnSetup {
 public:
  SpawnSetup() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }

  void Prepare(const std::string& log_path) {
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions_, STDOUT_FILENO, log_path.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
    posix_spawn_file_actions_adddup2(&actions_, STDOUT_FILENO, STDERR_FILENO);
    // All our files are close-on-exec already; libraries' may not be.
    posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1);
    // The daemon blocks the signals that its signal thread waits for; a worker must not.
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setflags(&attributes_,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }

  posix_spawn_file_actions_t* actions() { return &actions_; }
  posix_spawnattr_t* attributes() { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

constexpr std::string_view kVisibleDevices = "CUDA_VISIBLE_DEVICES=";

// The environment with this setting in place of its own. Points into both.
std::vector<char*> EnvironmentWith(const std::string& visible_devices) {
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with(kVisibleDevices)) environment.push_back(*entry);
  }
  environment.push_back(const_cast<char*>(visible_devices.c_str()));  // posix_spawn only reads.
  environment.push_back(nullptr);
  return environment;
}

ExitFacts Reap(int pidfd) {
  siginfo_t info{};
  if (waitid(P_PIDFD, static_cast<id_t>(pidfd), &info, WEXITED | WNOHANG) != 0 ||
      info.si_pid == 0) {
    return {};
  }
  const ExitKind kind = info.si_code == CLD_EXITED ? ExitKind::kExited : ExitKind::kSignalled;
  return {.kind = kind, .code = info.si_status};
}

int64_t CounterIn(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string name;
  int64_t value = 0;
  while (file >> name >> value) {
    if (name == key) return value;
  }
  return 0;
}

}  // namespace

// ---- ProcessHandle ----

absl::StatusOr<ProcessHandle> ProcessHandle::Spawn(const SpawnArgs& args) {
  SpawnSetup setup;
  setup.Prepare(args.log_path);
  std::string flag = "--assignment";
  std::string binary = args.binary;
  std::string assignment = args.assignment_path;
  char* argv[] = {binary.data(), flag.data(), assignment.data(), nullptr};
  const std::string device = absl::StrCat(std::string(kVisibleDevices), args.cuda_visible_devices);
  std::vector<char*> environment = EnvironmentWith(device);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, binary.c_str(), setup.actions(), setup.attributes(), argv,
                                environment.data());
  if (error != 0 && access(binary.c_str(), X_OK) != 0) {
    return Error(absl::StatusCode::kFailedPrecondition, reason::kConfigInvalid,
                 absl::StrCat(args.binary, " cannot be started: ", std::strerror(errno),
                              "; install it where penstockd expects it, or name its place with "
                              "--worker-binary"));
  }
  if (error != 0) return SystemError(absl::StrCat("cannot start ", args.binary), error);
  // The child cannot be reaped before we do it, so the pid is its own still.
  const int pidfd = PidfdOpen(pid);
  if (pidfd < 0) {
    const int open_error = errno;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return SystemError("cannot open a pidfd of the worker", open_error);
  }
  return ProcessHandle(pid, pidfd);
}

absl::StatusOr<ProcessHandle> ProcessHandle::Adopt(const ProcessIdentity& identity) {
  const int pidfd = PidfdOpen(identity.pid);
  if (pidfd < 0) {
    return absl::NotFoundError(absl::StrCat("process ", identity.pid, " is gone"));
  }
  ProcessHandle process(identity.pid, pidfd);
  // Compared after the pidfd is open: from now on the pid cannot change hands unseen.
  if (IdentityOf(identity.pid) != identity) {
    return absl::NotFoundError(absl::StrCat("process ", identity.pid, " is another one now"));
  }
  return process;
}

ProcessHandle::ProcessHandle(ProcessHandle&& other) noexcept
    : pid_(other.pid_), pidfd_(std::exchange(other.pidfd_, -1)) {}
ProcessHandle& ProcessHandle::operator=(ProcessHandle&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  return *this;
}
ProcessHandle::~ProcessHandle() {
  if (pidfd_ >= 0) close(pidfd_);
}

void ProcessHandle::Kill() { syscall(SYS_pidfd_send_signal, pidfd_, SIGKILL, nullptr, 0); }

bool ProcessHandle::WaitForEnd(int milliseconds) const {
  struct pollfd poll_fd {
    .fd = pidfd_, .events = POLLIN, .revents = 0
  };
  return poll(&poll_fd, 1, milliseconds) == 1;
}

// ---- ProcessWatcher ----

absl::StatusOr<std::unique_ptr<ProcessWatcher>> ProcessWatcher::Create() {
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0) return SystemError("epoll_create1", errno);
  const int stop_event = eventfd(0, EFD_CLOEXEC);
  struct epoll_event event {};
  event.events = EPOLLIN;
  event.data.fd = stop_event;
  if (stop_event < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, stop_event, &event) != 0) {
    const int error = errno;
    close(epoll);
    if (stop_event >= 0) close(stop_event);
    return SystemError("eventfd", error);
  }
  return std::unique_ptr<ProcessWatcher>(new ProcessWatcher(epoll, stop_event));
}

ProcessWatcher::ProcessWatcher(int epoll, int stop_event)
    : epoll_(epoll), stop_event_(stop_event), thread_([this] { Run(); }) {}

ProcessWatcher::~ProcessWatcher() {
  const uint64_t one = 1;
  if (write(stop_event_, &one, sizeof one) == sizeof one) thread_.join();
  close(stop_event_);
  close(epoll_);
}

absl::Status ProcessWatcher::Watch(const ProcessHandle& process,
                                   std::function<void(ExitFacts)> on_end) {
  std::lock_guard lock(mutex_);
  struct epoll_event event {};
  event.events = EPOLLIN | EPOLLONESHOT;
  event.data.fd = process.pidfd();
  watched_[process.pidfd()] = std::move(on_end);
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, process.pidfd(), &event) != 0) {
    watched_.erase(process.pidfd());
    return SystemError("cannot watch the worker", errno);
  }
  return absl::OkStatus();
}

void ProcessWatcher::Run() {
  while (true) {
    struct epoll_event event {};
    const int got = epoll_wait(epoll_, &event, 1, -1);
    if (got < 0 && errno == EINTR) continue;
    if (got != 1 || event.data.fd == stop_event_) return;
    const int pidfd = event.data.fd;
    const ExitFacts facts = Reap(pidfd);
    std::function<void(ExitFacts)> on_end;
    {
      std::lock_guard lock(mutex_);
      epoll_ctl(epoll_, EPOLL_CTL_DEL, pidfd, nullptr);
      auto node = watched_.extract(pidfd);
      if (!node.empty()) on_end = std::move(node.mapped());
    }
    if (on_end) on_end(facts);
  }
}

// ---- What happened ----

int64_t OutOfMemoryKills() {
  return CounterIn("/proc/vmstat", "oom_kill") +
         CounterIn("/sys/fs/cgroup/memory.events", "oom_kill");
}

}  // namespace penstock::server
