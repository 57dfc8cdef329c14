// The journal, the reporter against a daemon that comes and goes, and the outcome file.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "penstock/internal/worker.grpc.pb.h"
#include "server/worker/attempt.h"
#include "server/worker/confinement.h"
#include "server/worker/event_journal.h"
#include "server/worker/job_observer.h"
#include "server/worker/reporter.h"
#include "server/worker/step_watchdog.h"

namespace penstock::server {
namespace {

class TempDirTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/penstock-worker-XXXXXX";  // short: sockets lie in it
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string directory_;
};

internal::WorkerEvent Metric(int64_t step) {
  internal::WorkerEvent event;
  event.mutable_metrics()->set_step(step);
  return event;
}

using EventJournalTest = TempDirTest;

TEST_F(EventJournalTest, GivesBackInOrderWhatIsNotAcknowledged) {
  auto journal = EventJournal::Create(directory_ + "/journal.seg");
  ASSERT_TRUE(journal.ok()) << journal.status();
  constexpr int kEvents = 3 * EventJournal::kMaxBatchEvents + 7;
  for (int i = 1; i <= kEvents; ++i) (*journal)->Append(Metric(i));
  uint64_t expected = 1;
  while ((*journal)->HasPending()) {
    const auto batch = (*journal)->Batch();
    ASSERT_FALSE(batch.empty());
    ASSERT_LE(static_cast<int64_t>(batch.size()), EventJournal::kMaxBatchEvents);
    ASSERT_EQ(batch.size(), (*journal)->Batch().size()) << "the same until acknowledged";
    for (const auto& event : batch) {
      EXPECT_EQ(event.number(), expected);
      EXPECT_EQ(event.metrics().step(), static_cast<int64_t>(expected));
      ++expected;
    }
    (*journal)->Acknowledge(expected - 1);
  }
  EXPECT_EQ(expected, static_cast<uint64_t>(kEvents) + 1);
  EXPECT_TRUE((*journal)->Batch().empty());
}

TEST_F(EventJournalTest, PartialAcknowledgementKeepsTheRest) {
  auto journal = EventJournal::Create(directory_ + "/journal.seg");
  ASSERT_TRUE(journal.ok()) << journal.status();
  for (int i = 1; i <= 5; ++i) (*journal)->Append(Metric(i));
  ASSERT_EQ((*journal)->Batch().size(), 5u);
  (*journal)->Acknowledge(3);
  (*journal)->Append(Metric(6));
  const auto batch = (*journal)->Batch();
  ASSERT_EQ(batch.size(), 3u);
  EXPECT_EQ(batch[0].number(), 4u);
  EXPECT_EQ(batch[2].number(), 6u);
}

TEST_F(EventJournalTest, TheFileIsStartedAnewOnceAllIsAcknowledged) {
  const std::string path = directory_ + "/journal.seg";
  auto journal = EventJournal::Create(path);
  ASSERT_TRUE(journal.ok()) << journal.status();
  internal::WorkerEvent large;
  large.mutable_checkpoint_saved()->set_directory(std::string(500'000, 'x'));
  for (int i = 0; i < 10; ++i) (*journal)->Append(large);
  EXPECT_GT(std::filesystem::file_size(path), size_t{4'000'000});
  size_t seen = 0;
  while ((*journal)->HasPending()) {
    const auto batch = (*journal)->Batch();
    seen += batch.size();
    (*journal)->Acknowledge(batch.back().number());
  }
  EXPECT_EQ(seen, 10u);
  EXPECT_LT(std::filesystem::file_size(path), 1000u);
  (*journal)->Append(Metric(11));
  EXPECT_EQ((*journal)->Batch().at(0).number(), 11u);
}

TEST_F(EventJournalTest, AnAttemptHasOneWorker) {
  ASSERT_TRUE(EventJournal::Create(directory_ + "/journal.seg").ok());
  EXPECT_FALSE(EventJournal::Create(directory_ + "/journal.seg").ok());
}

// Stands in for the daemon; remembers like its store over restarts.
class FakeDaemon : public internal::WorkerService::Service {
 public:
  explicit FakeDaemon(std::string socket) : socket_(std::move(socket)) { Start(); }
  ~FakeDaemon() override { Stop(); }

  void Start() {
    std::filesystem::remove(socket_);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket_, grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  void Stop() {
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }

  grpc::Status Attach(grpc::ServerContext*, const internal::AttachRequest*,
                      internal::AttachResponse* response) override {
    absl::MutexLock lock(&mutex_);
    ++attaches_;
    response->set_acknowledged(steps_.size());
    return grpc::Status::OK;
  }
  grpc::Status Report(grpc::ServerContext*, const internal::ReportRequest* request,
                      internal::ReportResponse* response) override {
    absl::MutexLock lock(&mutex_);
    for (const auto& event : request->events()) {
      if (event.number() <= steps_.size()) continue;
      if (event.number() != steps_.size() + 1) gap_ = true;
      steps_.push_back(event.metrics().step());
      if (event.has_trace_written()) trace_written_ = event.trace_written();
    }
    response->set_acknowledged(steps_.size());
    response->set_command(command_);
    response->set_trace_request(trace_request_);
    // A stored report whose reply is lost: the worker must send it again, we must not double it.
    if (lose_replies_ > 0) {
      --lose_replies_;
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "reply lost");
    }
    return grpc::Status::OK;
  }

  std::vector<int64_t> steps() {
    absl::MutexLock lock(&mutex_);
    return steps_;
  }
  bool gap() {
    absl::MutexLock lock(&mutex_);
    return gap_;
  }
  int attaches() {
    absl::MutexLock lock(&mutex_);
    return attaches_;
  }
  void SetCommand(internal::WorkerCommand command) {
    absl::MutexLock lock(&mutex_);
    command_ = command;
  }
  void SetTraceRequest(uint64_t request) {
    absl::MutexLock lock(&mutex_);
    trace_request_ = request;
  }
  uint64_t trace_written() {
    absl::MutexLock lock(&mutex_);
    return trace_written_;
  }
  void LoseReplies(int count) {
    absl::MutexLock lock(&mutex_);
    lose_replies_ = count;
  }

 private:
  const std::string socket_;
  absl::Mutex mutex_;
  std::vector<int64_t> steps_;
  bool gap_ = false;
  int attaches_ = 0;
  int lose_replies_ = 0;
  uint64_t trace_request_ = 0, trace_written_ = 0;
  internal::WorkerCommand command_ = internal::WORKER_COMMAND_CONTINUE;
  std::unique_ptr<grpc::Server> server_;
};

class ReporterTest : public TempDirTest {
 protected:
  void SetUp() override {
    TempDirTest::SetUp();
    auto journal = EventJournal::Create(directory_ + "/journal.seg");
    ASSERT_TRUE(journal.ok()) << journal.status();
    journal_ = *std::move(journal);
    identity_.set_job("jobs/test");
    identity_.set_attempt(1);
  }
  std::string Socket() const { return directory_ + "/w.sock"; }
  std::unique_ptr<EventJournal> journal_;
  internal::WorkerIdentity identity_;
};

TEST_F(ReporterTest, LosesAndDoublesNothingOverRestartsAndLostReplies) {
  FakeDaemon daemon(Socket());
  Reporter reporter(Socket(), identity_, journal_.get());
  constexpr int kEvents = 2000;
  for (int i = 1; i <= kEvents; ++i) {
    reporter.Record(Metric(i));
    if (i == 500) daemon.LoseReplies(2);
    if (i == 1000) daemon.Stop();
    if (i == 1500) daemon.Start();
  }
  ASSERT_TRUE(reporter.WaitUntilAcknowledged(absl::Seconds(60)));
  const std::vector<int64_t> steps = daemon.steps();
  ASSERT_EQ(steps.size(), static_cast<size_t>(kEvents));
  for (int i = 0; i < kEvents; ++i) ASSERT_EQ(steps[static_cast<size_t>(i)], i + 1);
  EXPECT_FALSE(daemon.gap());
}

TEST_F(ReporterTest, StartsBeforeTheDaemonDoes) {
  Reporter reporter(Socket(), identity_, journal_.get());
  reporter.Record(Metric(1));
  EXPECT_FALSE(reporter.WaitUntilAcknowledged(absl::Milliseconds(300)));
  FakeDaemon daemon(Socket());
  EXPECT_TRUE(reporter.WaitUntilAcknowledged(absl::Seconds(60)));
}

TEST_F(ReporterTest, CancelBecomesAWishToStop) {
  FakeDaemon daemon(Socket());
  Reporter reporter(Socket(), identity_, journal_.get());
  std::atomic<bool> signalled = false;
  JobObserver observer("jobs/test", 1, "/nowhere/trace.json", &reporter, &signalled);
  EXPECT_EQ(observer.Ask(), Wish::kContinue);
  daemon.SetCommand(internal::WORKER_COMMAND_STOP);
  for (int i = 0; i < 600 && observer.Ask() == Wish::kContinue; ++i) {
    absl::SleepFor(absl::Milliseconds(100));
  }
  EXPECT_EQ(observer.Ask(), Wish::kStop);
}

TEST_F(ReporterTest, ATimelineThatIsAskedForIsWrittenOnceAndReported) {
  FakeDaemon daemon(Socket());
  Reporter reporter(Socket(), identity_, journal_.get());
  std::atomic<bool> signalled = false;
  const std::string path = directory_ + "/trace.json";
  JobObserver observer("jobs/test", 1, path, &reporter, &signalled);
  EXPECT_FALSE(observer.TakeTraceRequest());
  daemon.SetTraceRequest(7);
  bool asked = false;
  for (int i = 0; i < 600 && !(asked = observer.TakeTraceRequest()); ++i) {
    absl::SleepFor(absl::Milliseconds(100));
  }
  ASSERT_TRUE(asked);
  EXPECT_FALSE(observer.TakeTraceRequest()) << "once";
  observer.OnStepTrace("[]");
  EXPECT_EQ(std::filesystem::file_size(path), 2u);
  EXPECT_TRUE(reporter.WaitUntilAcknowledged(absl::Seconds(60)));
  EXPECT_EQ(daemon.trace_written(), 7u);
}

TEST_F(ReporterTest, SigtermIsAWishToStop) {
  Reporter reporter(Socket(), identity_, journal_.get());
  std::atomic<bool> signalled = false;
  JobObserver observer("jobs/test", 1, "/nowhere/trace.json", &reporter, &signalled);
  EXPECT_EQ(observer.Ask(), Wish::kContinue);
  signalled = true;
  EXPECT_EQ(observer.Ask(), Wish::kStop);
}

// The child of a death test runs this program again and ends without clean-up, so it must work in
// the directory of its parent.
constexpr char kParentDirectory[] = "PENSTOCK_DEATH_TEST_DIRECTORY";

class ReporterDeathTest : public TempDirTest {
 protected:
  void SetUp() override {
    if (const char* directory = std::getenv(kParentDirectory)) {
      directory_ = directory;
      return;
    }
    TempDirTest::SetUp();
    setenv(kParentDirectory, directory_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv(kParentDirectory);
    TempDirTest::TearDown();
  }
};

TEST_F(ReporterDeathTest, ExitCommandEndsTheProcessAtOnce) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        auto journal = EventJournal::Create(directory_ + "/journal.seg");
        FakeDaemon daemon(directory_ + "/w.sock");
        daemon.SetCommand(internal::WORKER_COMMAND_EXIT);
        Reporter reporter(directory_ + "/w.sock", internal::WorkerIdentity(), journal->get());
        absl::SleepFor(absl::Seconds(60));
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(ReporterTest, ObserverTurnsRecordsIntoEvents) {
  Reporter reporter(Socket(), identity_, journal_.get());
  std::atomic<bool> signalled = false;
  JobObserver observer("jobs/test", 3, "/nowhere/trace.json", &reporter, &signalled);
  observer.OnTotalSteps(2);
  observer.OnPhase(Phase::kTrain, 0);
  observer.OnPhase(Phase::kTrain, 0.5);
  observer.OnStep({.step = 1,
                   .loss = 2.5,
                   .real_tokens = 100,
                   .padding_tokens = 28,
                   .step_seconds = 0.5,
                   .skipped_documents = {},
                   .lane_busy_seconds = {{"compute", 0.4}}});
  observer.OnEvaluation({.step = 1, .loss = 0, .labelled_tokens = 10, .seconds = 0.1});
  observer.OnCheckpointSaved({.step = 1, .bytes = 10, .loss = 2.5, .directory = "/c/1"});
  observer.OnCheckpointRemoved(1);
  const auto events = journal_->Batch();
  ASSERT_EQ(events.size(), 5u);
  EXPECT_TRUE(events[0].has_training_started()) << "once, at the first TRAIN";
  EXPECT_EQ(events[1].metrics().attempt(), 3);
  EXPECT_EQ(events[1].metrics().tokens_per_second(), 200);
  EXPECT_EQ(events[1].metrics().real_tokens(), 100);
  EXPECT_EQ(events[1].metrics().padding_tokens(), 28);
  EXPECT_EQ(events[1].metrics().lane_busy_seconds().at("compute"), 0.4);
  EXPECT_EQ(events[2].metrics().evaluation().perplexity(), 1);
  EXPECT_EQ(events[3].checkpoint_saved().name(), "jobs/test/checkpoints/1");
  EXPECT_EQ(events[4].checkpoint_removed(), 1);
}

TEST(StepWatchdogTest, Bc60AStepThatNeverEndsIsNoticed) {
  absl::Notification hung;
  const WatchdogLimits limits{
      .first = absl::Milliseconds(50), .factor = 20, .least = absl::Milliseconds(50)};
  absl::Duration silent;
  StepWatchdog watchdog(limits, [&](absl::Duration time) {
    silent = time;
    hung.Notify();
  });
  ASSERT_TRUE(hung.WaitForNotificationWithTimeout(absl::Seconds(60)));
  EXPECT_GE(silent, limits.first);
}

TEST(StepWatchdogTest, ALimitFollowsTheLongestPause) {
  absl::Notification hung;
  StepWatchdog watchdog({.first = absl::Hours(1), .factor = 1e6, .least = absl::Milliseconds(1)},
                        [&](absl::Duration) { hung.Notify(); });
  watchdog.Beat();
  absl::SleepFor(absl::Milliseconds(20));
  watchdog.StepDone();  // now the limit is 20 ms times a million
  EXPECT_FALSE(hung.WaitForNotificationWithTimeout(absl::Milliseconds(200)));
}

using AttemptTest = TempDirTest;

TEST_F(AttemptTest, AssignmentsAreCheckedBeforeUse) {
  const std::string path = directory_ + "/assignment.pb";
  EXPECT_FALSE(ReadAssignment(path).ok());
  std::ofstream(path) << "not a message \xff\xff";
  EXPECT_FALSE(ReadAssignment(path).ok());
  internal::Assignment assignment;
  assignment.set_job("jobs/x");
  std::ofstream(path) << assignment.SerializeAsString();
  EXPECT_FALSE(ReadAssignment(path).ok());
  assignment.set_attempt(2);
  assignment.set_job_directory(directory_);
  assignment.set_daemon_socket("/s");
  assignment.mutable_train();
  std::ofstream(path) << assignment.SerializeAsString();
  const auto read = ReadAssignment(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(AttemptDirectory(*read), directory_ + "/attempts/2");
}

TEST_F(AttemptTest, AnErrorsReasonAndMetadataReachTheOutcome) {
  const auto outcome = FailedOutcome(Error(absl::StatusCode::kUnavailable, reason::kDeviceFailed,
                                           "bad \xff name", {{"fault", "hardware"}}));
  EXPECT_EQ(outcome.result(), internal::ATTEMPT_RESULT_FAILED);
  google::rpc::ErrorInfo info;
  ASSERT_GE(outcome.error().details_size(), 1);
  ASSERT_TRUE(outcome.error().details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), reason::kDeviceFailed);
  EXPECT_EQ(info.metadata().at("fault"), "hardware");
  EXPECT_THAT(outcome.error().message(), ::testing::Not(::testing::HasSubstr("\xff")));
}

TEST_F(AttemptTest, OutcomeIsThereWholeAndAlone) {
  internal::Assignment assignment;
  assignment.set_job_directory(directory_);
  assignment.set_attempt(1);
  std::filesystem::create_directories(AttemptDirectory(assignment));
  internal::AttemptOutcome outcome;
  outcome.set_result(internal::ATTEMPT_RESULT_SUCCEEDED);
  ASSERT_TRUE(WriteOutcome(assignment, outcome).ok());
  std::ifstream file(AttemptDirectory(assignment) + "/outcome.pb", std::ios::binary);
  internal::AttemptOutcome read;
  ASSERT_TRUE(read.ParseFromIstream(&file));
  EXPECT_EQ(read.result(), internal::ATTEMPT_RESULT_SUCCEEDED);
  int files = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(AttemptDirectory(assignment))) {
    ++files;
  }
  EXPECT_EQ(files, 1) << "no temporary file is left";
  assignment.set_attempt(9);
  EXPECT_FALSE(WriteOutcome(assignment, outcome).ok()) << "no such directory";
}

// What the functions give in a process of its own, which is confined before: 0, or an errno.
std::vector<int> WhenConfined(const std::vector<std::function<int()>>& attempts) {
  int pipe_ends[2];
  EXPECT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    // Also for threads that are there already, as those of a library may be.
    std::promise<void> confined, done;
    std::vector<int> found;
    std::thread early([&] {
      confined.get_future().wait();
      for (const auto& attempt : attempts) found.push_back(attempt());
      done.set_value();
    });
    if (!ConfineProcess().ok()) _exit(1);
    confined.set_value();
    done.get_future().wait();
    const auto bytes = static_cast<ssize_t>(found.size() * sizeof(int));
    _exit(write(pipe_ends[1], found.data(), static_cast<size_t>(bytes)) == bytes ? 0 : 1);
  }
  close(pipe_ends[1]);
  std::vector<int> found(attempts.size(), -1);
  const ssize_t got = read(pipe_ends[0], found.data(), found.size() * sizeof(int));
  close(pipe_ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(got, static_cast<ssize_t>(found.size() * sizeof(int)));
  return found;
}

int ErrnoOf(int64_t result) { return result < 0 ? errno : 0; }

TEST(ConfinementTest, NoNetworkNoOtherProcessesAndTheRestAsBefore) {
  EXPECT_EQ(WhenConfined({[] { return ErrnoOf(socket(AF_INET, SOCK_STREAM, 0)); },
                          [] { return ErrnoOf(socket(AF_INET6, SOCK_DGRAM, 0)); },
                          [] { return ErrnoOf(socket(AF_PACKET, SOCK_RAW, 0)); },
                          [] { return ErrnoOf(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)); },
                          [] { return ErrnoOf(unshare(CLONE_NEWNS)); },
                          [] { return ErrnoOf(syscall(SYS_io_uring_setup, 1, nullptr)); }}),
            (std::vector<int>{EAFNOSUPPORT, EAFNOSUPPORT, EAFNOSUPPORT, EPERM, EPERM, ENOSYS}));
  EXPECT_EQ(WhenConfined({[] { return ErrnoOf(socket(AF_UNIX, SOCK_STREAM, 0)); },
                          [] { return ErrnoOf(open("/proc/self/status", O_RDONLY)); },
                          [] { return ErrnoOf(memfd_create("x", 0)); },
                          [] { return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : 1; }}),
            (std::vector<int>{0, 0, 0, 0}));
}

}  // namespace
}  // namespace penstock::server
