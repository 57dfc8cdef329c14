// penstock-worker --assignment FILE: runs one attempt at one job, reports to penstockd, exits.
//
// Started by penstockd only. Exit codes: 0 the daemon has the outcome (whatever it is) or will find
// it, or the attempt was no longer the job's; 2 usage or a bad assignment; 3 the lock of the job is
// held; 4 the attempt's files cannot be written. Anything else is a crash.

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "server/lock_file.h"
#include "server/worker/attempt.h"
#include "server/worker/event_journal.h"
#include "server/worker/job_observer.h"
#include "server/worker/process_setup.h"
#include "server/worker/reporter.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace penstock::server {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitLocked = 3;
constexpr int kExitFiles = 4;
constexpr absl::Duration kLockLimit = absl::Seconds(10);
constexpr absl::Duration kFarewellLimit = absl::Seconds(30);

void SetUpLog() {
  auto logger = spdlog::stdout_logger_mt("worker");
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  logger->flush_on(spdlog::level::trace);  // the last lines before a crash matter most
  spdlog::set_default_logger(std::move(logger));
}

int Fail(int exit_code, const absl::Status& status) {
  spdlog::error("{}", std::string(status.message()));
  return exit_code;
}

// A predecessor that was told to leave may take a moment to do so.
absl::StatusOr<LockFile> LockJob(const internal::Assignment& assignment,
                                 const ProcessIdentity& self) {
  const std::string path = absl::StrCat(assignment.job_directory(), "/worker.lock");
  const std::string contents = FormatWorkerLock({.process = self, .attempt = assignment.attempt()});
  const absl::Time deadline = absl::Now() + kLockLimit;
  while (true) {
    absl::StatusOr<LockFile> lock = LockFile::Acquire(path, contents);
    if (lock.ok() || ReasonOf(lock.status()) != reason::kLockHeld || absl::Now() >= deadline) {
      return lock;
    }
    absl::SleepFor(absl::Milliseconds(100));
  }
}

int Run(const std::string& assignment_path) {
  const std::atomic<bool>* stop_requested = SetUpProcess();
  SetUpLog();
  const absl::StatusOr<internal::Assignment> assignment = ReadAssignment(assignment_path);
  if (!assignment.ok()) return Fail(kExitUsage, assignment.status());

  // Before anything else is touched: two workers of one job must never write its files.
  const ProcessIdentity self = SelfIdentity();
  const absl::StatusOr<LockFile> lock = LockJob(*assignment, self);
  if (!lock.ok()) return Fail(kExitLocked, lock.status());
  spdlog::info("{} attempt {}: worker {} starts", assignment->job(), assignment->attempt(),
               self.pid);

  absl::StatusOr<std::unique_ptr<EventJournal>> journal =
      EventJournal::Create(absl::StrCat(AttemptDirectory(*assignment), "/journal.seg"));
  if (!journal.ok()) return Fail(kExitFiles, journal.status());
  internal::WorkerIdentity identity;
  identity.set_job(assignment->job());
  identity.set_attempt(assignment->attempt());
  identity.set_pid(self.pid);
  identity.set_start_ticks(self.start_ticks);
  Reporter reporter(assignment->daemon_socket(), identity, journal->get());
  JobObserver observer(assignment->job(), assignment->attempt(), &reporter, stop_requested);

  const internal::AttemptOutcome outcome = RunAttempt(*assignment, observer);
  if (outcome.has_error()) spdlog::error("{}", outcome.error().message());
  spdlog::info("outcome: {}", internal::AttemptResult_Name(outcome.result()));

  const absl::Status written = WriteOutcome(*assignment, outcome);
  if (!written.ok()) spdlog::error("{}", std::string(written.message()));
  internal::WorkerEvent last;
  *last.mutable_outcome() = outcome;
  reporter.Record(std::move(last));
  if (reporter.WaitUntilAcknowledged(kFarewellLimit)) return 0;
  spdlog::warn("the daemon is away and has not stored the outcome; it is in outcome.pb");
  return written.ok() ? 0 : kExitFiles;
}

}  // namespace
}  // namespace penstock::server

int main(int argc, char** argv) {
  if (argc != 3 || std::string(argv[1]) != "--assignment") {
    std::fprintf(stderr, "usage: penstock-worker --assignment FILE (penstockd starts this)\n");
    return 2;
  }
  return penstock::server::Run(argv[2]);
}
