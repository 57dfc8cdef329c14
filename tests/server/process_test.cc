// A daemon process that is signalled, killed and started again, with fake workers.
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/job_state.h"
#include "tests/server/raw_call.h"
#include "tests/server/test_support.h"

namespace penstock::server {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using testing::HasSubstr;

// penstock_test_daemon as a child.
class DaemonProcess {
 public:
  DaemonProcess(const TestDirectory& directory, std::vector<std::string> flags = {})
      : log_(directory.path() + "/daemon.log") {
    std::vector<std::string> arguments = {
        PENSTOCK_TEST_DAEMON, "--state-directory",  directory.state(),
        "--worker-binary",    PENSTOCK_FAKE_WORKER, "--host-memory-bytes",
        "1000000000",         "--log-level",        "warning"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    // Freed memory that the address sanitizer holds back would look like growth.
    setenv("ASAN_OPTIONS", "quarantine_size_mb=1:thread_local_quarantine_size_kb=16", 1);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log_.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0600);
    EXPECT_EQ(posix_spawn(&pid_, PENSTOCK_TEST_DAEMON, &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;
  ~DaemonProcess() {
    if (pid_ > 0) {
      Signal(SIGKILL);
      Wait();
    }
  }

  void Signal(int number) const { kill(pid_, number); }
  // Exit code, or minus the signal.
  int Wait() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int64_t ResidentBytes() const {
    std::ifstream statm("/proc/" + std::to_string(pid_) + "/statm");
    int64_t total = 0, resident = 0;
    statm >> total >> resident;
    return resident * sysconf(_SC_PAGESIZE);
  }
  std::string Log() const {
    std::stringstream text;
    text << std::ifstream(log_).rdbuf();
    return text.str();
  }

 private:
  std::string log_;
  pid_t pid_ = -1;
};

// A channel may first notice that the previous daemon is gone, so one call is not enough.
void WaitUntilServing(Client& client, const DaemonProcess& daemon) {
  grpc::Status status;
  for (const auto end = Clock::now() + std::chrono::seconds(20); Clock::now() < end;) {
    grpc::ClientContext context;
    // Without it nobody polls the connection while this loop sleeps, and it never comes about.
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    v1::GetServerInfoResponse info;
    status = client.admin->GetServerInfo(&context, {}, &info);
    if (status.ok()) return;
    std::this_thread::sleep_for(milliseconds(10));
  }
  FAIL() << status.error_message() << "\n" << daemon.Log();
}

TEST(DaemonProcessTest, ASecondDaemonExits78NamingTheFirst) {
  TestDirectory directory;
  DaemonProcess first(directory);
  Client client(directory.socket());
  WaitUntilServing(client, first);
  DaemonProcess second(directory);
  EXPECT_EQ(second.Wait(), 78);
  EXPECT_THAT(second.Log(), HasSubstr("another penstockd has"));
}

// Found by fuzzing: each was a line in the log, which who may not even come in could fill a disk
// with.
TEST(DaemonProcessTest, RequestsThatAreNoTextAreRefusedAndFillNoLog) {
  TestDirectory directory;
  DaemonProcess daemon(directory);
  Client client(directory.socket());
  WaitUntilServing(client, daemon);
  for (int i = 0; i < 20; ++i) {
    const RawReply reply = Make({.method = "penstock.v1.JobService/GetJob",
                                 .requests = {std::string("\x0a\x02\xff\xff", 4)}},
                                client.channel);
    EXPECT_FALSE(reply.status.ok());
  }
  EXPECT_THAT(daemon.Log(), testing::Not(HasSubstr("UTF-8")));
}

TEST(DaemonProcessTest, ConfigurationsThatCannotBeExit78) {
  TestDirectory directory;
  EXPECT_EQ(DaemonProcess(directory, {"--listen", "0.0.0.0:7070"}).Wait(), 78);
  EXPECT_EQ(DaemonProcess(directory, {"--max-streams", "0"}).Wait(), 78);
  EXPECT_EQ(DaemonProcess(directory, {"--no-such-flag"}).Wait(), 2);
}

TEST(DaemonProcessTest, TerminateHasRunningJobsSaveAndTheNextDaemonGoesOnWithThem) {
  TestDirectory directory;
  std::optional<DaemonProcess> daemon(std::in_place, directory);
  Client client(directory.socket());
  WaitUntilServing(client, *daemon);
  const Labels labels = {{"steps", "60"}, {"step_ms", "20"}, {"save_at_stop", "1"}};
  const std::string name = client.Submit(labels);
  const std::string queued = client.Submit({{"steps", "2"}});
  client.WaitForState(name, v1::JOB_STATE_RUNNING);
  daemon->Signal(SIGTERM);
  EXPECT_EQ(daemon->Wait(), 75);
  EXPECT_FALSE(fs::is_empty(directory.state() + "/" + name + "/checkpoints"));
  daemon.emplace(directory);
  WaitUntilServing(client, *daemon);
  const v1::Job end = client.WaitForEnd(name);
  EXPECT_EQ(end.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(end.attempt(), 2);
  EXPECT_EQ(end.preemptions(), 0);
  EXPECT_EQ(client.WaitForEnd(queued).state(), v1::JOB_STATE_SUCCEEDED);
  daemon->Signal(SIGTERM);
  EXPECT_EQ(daemon->Wait(), 0) << "nothing is left to do";
}

TEST(DaemonProcessTest, TerminateWithDrainWaitsForTheRunningJobThenExits0) {
  TestDirectory directory;
  DaemonProcess daemon(directory, {"--on-terminate", "drain"});
  Client client(directory.socket());
  WaitUntilServing(client, daemon);
  const std::string name = client.Submit({{"steps", "50"}, {"step_ms", "10"}});
  client.WaitForState(name, v1::JOB_STATE_RUNNING);
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), 0);
  DaemonProcess next(directory);
  WaitUntilServing(client, next);
  EXPECT_EQ(client.Get(name).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(client.Get(name).attempt(), 1);
}

TEST(DaemonProcessTest, TerminateWithLeaveExits75AndTheNextDaemonAdopts) {
  TestDirectory directory;
  DaemonProcess daemon(directory, {"--on-terminate", "leave"});
  Client client(directory.socket());
  WaitUntilServing(client, daemon);
  const std::string name = client.Submit({{"steps", "100"}, {"step_ms", "10"}});
  const std::string queued = client.Submit({{"steps", "2"}});
  client.WaitForState(name, v1::JOB_STATE_RUNNING);
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), 75);
  DaemonProcess next(directory);
  WaitUntilServing(client, next);
  EXPECT_EQ(client.WaitForEnd(name).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(client.Get(name).attempt(), 1);
  EXPECT_EQ(client.WaitForEnd(queued).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST(DaemonProcessTest, ASecondSigtermChangesNothingAndCtrlCCutsTheWait) {
  TestDirectory directory;
  std::optional<DaemonProcess> daemon(std::in_place, directory,
                                      std::vector<std::string>{"--on-terminate", "drain"});
  Client client(directory.socket());
  WaitUntilServing(client, *daemon);
  const std::string name = client.Submit({{"steps", "100"}, {"step_ms", "10"}});
  client.WaitForState(name, v1::JOB_STATE_RUNNING);
  for (const int number : {SIGUSR1, SIGTERM, SIGTERM, SIGUSR2}) {
    daemon->Signal(number);
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(daemon->Wait(), 0) << "the job ran to its end";
  daemon.emplace(directory, std::vector<std::string>{"--on-terminate", "drain"});
  WaitUntilServing(client, *daemon);
  const std::string longer = client.Submit({{"steps", "500"}, {"step_ms", "10"}});
  client.WaitForState(longer, v1::JOB_STATE_RUNNING);
  daemon->Signal(SIGTERM);
  // Of two that are pending at one time the kernel hands over the one with the lower number first.
  v1::GetServerInfoResponse info;
  while (info.status() != v1::SERVER_STATUS_DRAINING) {
    grpc::ClientContext context;
    ASSERT_TRUE(client.admin->GetServerInfo(&context, {}, &info).ok());
  }
  daemon->Signal(SIGINT);
  EXPECT_EQ(daemon->Wait(), 75) << "left to the next daemon";
  daemon.emplace(directory);
  WaitUntilServing(client, *daemon);
  EXPECT_EQ(client.WaitForEnd(longer).attempt(), 1);
}

TEST(DaemonProcessTest, APortThatIsTakenIsNamed) {
  TestDirectory directory, other;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in address {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(fd, reinterpret_cast<struct sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<struct sockaddr*>(&address), &length), 0);
  const std::string endpoint = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  DaemonProcess daemon(directory, {"--listen", endpoint});
  EXPECT_EQ(daemon.Wait(), 78);
  EXPECT_THAT(daemon.Log(), HasSubstr(endpoint));
  EXPECT_THAT(daemon.Log(), HasSubstr("taken"));
  close(fd);
}

int64_t MonotonicMicroseconds() {
  struct timespec now {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

// A service manager's end of NOTIFY_SOCKET.
class NotifySocket {
 public:
  explicit NotifySocket(const TestDirectory& directory) : path_(directory.path() + "/notify") {
    struct sockaddr_un address {};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof address.sun_path - 1);
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(fd_, reinterpret_cast<struct sockaddr*>(&address), sizeof address), 0);
    const struct timeval limit { .tv_sec = 20, .tv_usec = 0 };
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  NotifySocket(const NotifySocket&) = delete;
  NotifySocket& operator=(const NotifySocket&) = delete;
  ~NotifySocket() { close(fd_); }

  // A daemon that is started now notifies this socket and has a watchdog of that time.
  void Offer(const char* watchdog_usec) const {
    setenv("NOTIFY_SOCKET", path_.c_str(), 1);
    setenv("WATCHDOG_USEC", watchdog_usec, 1);
  }
  static void Withdraw() {
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
  }

  // What follows the prefix in the next state that has it; nothing if none comes.
  std::optional<std::string> Await(const std::string& prefix) const {
    char text[256];
    ssize_t got = 0;
    const auto end = Clock::now() + std::chrono::seconds(20);
    while (Clock::now() < end && (got = recv(fd_, text, sizeof text, 0)) > 0) {
      const std::string state(text, static_cast<size_t>(got));
      if (state.starts_with(prefix)) return state.substr(prefix.size());
    }
    return std::nullopt;
  }

 private:
  std::string path_;
  int fd_ = -1;
};

TEST(DaemonProcessTest, TheServiceManagerHearsReadyReloadingAndStopping) {
  TestDirectory directory;
  const NotifySocket manager(directory);
  manager.Offer("300000");
  DaemonProcess daemon(directory);
  NotifySocket::Withdraw();
  EXPECT_TRUE(manager.Await("READY=1"));
  EXPECT_TRUE(manager.Await("WATCHDOG=1"));
  EXPECT_TRUE(manager.Await("WATCHDOG=1"));
  const int64_t before = MonotonicMicroseconds();
  daemon.Signal(SIGHUP);
  const auto reloading = manager.Await("RELOADING=1\nMONOTONIC_USEC=");
  ASSERT_TRUE(reloading);
  EXPECT_GE(std::strtoll(reloading->c_str(), nullptr, 10), before);
  EXPECT_LE(std::strtoll(reloading->c_str(), nullptr, 10), MonotonicMicroseconds());
  EXPECT_TRUE(manager.Await("READY=1"));
  Client client(directory.socket());
  WaitUntilServing(client, daemon);
  const std::string name = client.Submit({{"steps", "50"}, {"step_ms", "20"}});
  client.WaitForState(name, v1::JOB_STATE_RUNNING);
  daemon.Signal(SIGTERM);
  EXPECT_TRUE(manager.Await("STOPPING=1"));
  EXPECT_TRUE(manager.Await("EXTEND_TIMEOUT_USEC=10000000")) << "while jobs save";
  EXPECT_TRUE(manager.Await("WATCHDOG=1")) << "and meanwhile";
  EXPECT_EQ(daemon.Wait(), 75);
}

// The manager's queue is full after as few as ten states that it did not read.
TEST(DaemonProcessTest, AServiceManagerThatDoesNotReadHoldsNoJobUp) {
  TestDirectory directory;
  const NotifySocket manager(directory);
  manager.Offer("30000");
  DaemonProcess daemon(directory);
  NotifySocket::Withdraw();
  Client client(directory.socket());
  WaitUntilServing(client, daemon);
  // Many times as long as it takes to fill the queue.
  const std::string name = client.Submit({{"steps", "100"}, {"step_ms", "20"}});
  EXPECT_EQ(client.WaitForEnd(name).state(), v1::JOB_STATE_SUCCEEDED);
}

// Watches `name` from a connection of its own; a stalled one reads one message and no more.
class Watchers {
 public:
  Watchers(const std::string& socket, const std::string& name, int count) {
    for (int i = 0; i < count; ++i) {
      clients_.push_back(std::make_unique<Client>(socket));
      contexts_.push_back(std::make_unique<grpc::ClientContext>());
      readers_.push_back(clients_.back()->jobs->WatchJobs(contexts_.back().get(), Watch(name)));
      if (i % 2 == 0) {
        threads_.emplace_back([reader = readers_.back().get()] {
          v1::WatchJobsResponse message;
          while (reader->Read(&message)) {
          }
        });
      } else {
        v1::WatchJobsResponse message;
        readers_.back()->Read(&message);
      }
    }
  }
  ~Watchers() {
    for (auto& context : contexts_) context->TryCancel();
    threads_.clear();
    for (auto& reader : readers_) reader->Finish();
  }

 private:
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts_;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::WatchJobsResponse>>> readers_;
  std::vector<std::jthread> threads_;
};

TEST(DaemonProcessTest, AHundredWatchersOfWhichHalfStallNeitherSlowTheJobNorGrowTheDaemon) {
  TestDirectory directory;
  DaemonProcess daemon(directory);
  Client client(directory.socket());
  WaitUntilServing(client, daemon);
  const Labels labels = {{"steps", "400"}, {"step_ms", "5"}, {"log_lines", "2000"}};
  const auto run = [&](int watchers, int64_t* growth) {
    const std::string name = client.Submit(labels);
    const Watchers watching(directory.socket(), name, watchers);
    const int64_t before = daemon.ResidentBytes();
    const auto start = Clock::now();
    EXPECT_EQ(client.WaitForEnd(name).state(), v1::JOB_STATE_SUCCEEDED);
    *growth = daemon.ResidentBytes() - before;
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  int64_t growth = 0;
  const double alone = run(0, &growth);
  const double watched = run(100, &growth);
  // A worker that a watcher could block would not end at all; the ratio only bounds the rest on a
  // busy machine.
  EXPECT_LT(watched, 4 * alone + 5);
  EXPECT_LT(growth, int64_t{16} << 20);
  RecordProperty("growth_bytes", std::to_string(growth));
  RecordProperty("slowdown", std::to_string(watched / alone));
}

// Submits with request ids, again after lost replies, until told to stop; keeps what was
// acknowledged.
class Submitter {
 public:
  Submitter(const std::string& socket, int number) : client_(socket), number_(number) {
    thread_ = std::jthread([this](std::stop_token stop) {
      for (int i = 0; !stop.stop_requested(); ++i) {
        Submit("req-" + std::to_string(number_) + "-" + std::to_string(i), stop);
        std::this_thread::sleep_for(milliseconds(120));
      }
    });
  }
  std::map<std::string, std::string> Finish() {
    thread_.request_stop();
    thread_.join();
    return acknowledged_;
  }

 private:
  void Submit(const std::string& id, const std::stop_token& stop) {
    v1::CreateJobRequest request = MakeRequest({{"steps", "3"}, {"step_ms", "8"}});
    request.mutable_spec()->mutable_limits()->set_max_attempts(1);
    request.set_request_id(id);
    while (!stop.stop_requested()) {
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
      v1::CreateJobResponse response;
      const grpc::Status status = client_.jobs->CreateJob(&context, request, &response);
      if (status.ok()) {
        acknowledged_[id] = response.job().name();
        return;
      }
      EXPECT_THAT(status.error_code(), testing::AnyOf(grpc::StatusCode::UNAVAILABLE,
                                                      grpc::StatusCode::DEADLINE_EXCEEDED))
          << status.error_message();
      std::this_thread::sleep_for(milliseconds(10));
    }
  }

  Client client_;
  const int number_;
  std::map<std::string, std::string> acknowledged_;
  std::jthread thread_;
};

TEST(DaemonProcessTest, KilledFiftyTimesUnderLoadItLosesNoJobAndRunsNoneTwiceAtOnce) {
  TestDirectory directory;
  constexpr int kKills = 50;
  std::mt19937 random(20240517);
  std::vector<std::unique_ptr<Submitter>> submitters;
  for (int i = 0; i < 3; ++i) {
    submitters.push_back(std::make_unique<Submitter>(directory.socket(), i));
  }
  for (int i = 0; i < kKills; ++i) {
    DaemonProcess daemon(directory);
    Client client(directory.socket());
    WaitUntilServing(client, daemon);
    std::this_thread::sleep_for(milliseconds(random() % 400));
    daemon.Signal(SIGKILL);
    ASSERT_EQ(daemon.Wait(), -SIGKILL) << daemon.Log();
  }
  DaemonProcess daemon(directory);
  Client client(directory.socket());
  WaitUntilServing(client, daemon);
  std::map<std::string, std::string> acknowledged;
  for (auto& submitter : submitters) acknowledged.merge(submitter->Finish());
  EXPECT_GT(acknowledged.size(), 30u);

  std::set<std::string> names;
  for (const auto& [id, name] : acknowledged) {
    EXPECT_TRUE(names.insert(name).second) << name << " answers two requests";
    // Each is known and comes to its end: max_attempts is 1, so a job that lost its worker to
    // anything would be FAILED.
    EXPECT_EQ(client.WaitForEnd(name).state(), v1::JOB_STATE_SUCCEEDED);
    EXPECT_FALSE(fs::exists(directory.state() + "/" + name + "/OVERLAP"));
    v1::WatchJobsRequest request = Watch(name);
    uint64_t sequence = 0;
    std::vector<int64_t> steps;
    for (const auto& message : ReadAll(client, request)) {
      if (message.has_state_changed()) {
        EXPECT_EQ(message.state_changed().sequence(), ++sequence);
      }
      if (message.has_metrics()) steps.push_back(message.metrics().step());
    }
    EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3})) << name;
  }
  EXPECT_EQ(client.WaitForEnd(client.Submit({{"steps", "1"}})).state(), v1::JOB_STATE_SUCCEEDED);
}

}  // namespace
}  // namespace penstock::server
