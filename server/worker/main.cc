// penstock-worker --assignment FILE: runs one attempt at one job, reports to penstockd, exits.
//
// Started by penstockd only. Exit codes: 0 the daemon has the outcome (whatever it is) or will find
// it, or the attempt was no longer the job's; 2 usage or a bad assignment; 3 the lock of the job is
// held; 4 the attempt's files cannot be written. Anything else is a crash.

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "server/fault/fault_point.h"
#include "server/lock_file.h"
#include "server/worker/attempt.h"
#include "server/worker/confinement.h"
#include "server/worker/event_journal.h"
#include "server/worker/job_observer.h"
#include "server/worker/process_setup.h"
#include "server/worker/reporter.h"
#include "server/worker/step_watchdog.h"
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

// Tells the daemon how the attempt ended, by file and by report. The exit code.
int Farewell(const internal::Assignment& assignment, const internal::AttemptOutcome& outcome,
             Reporter& reporter) {
  FaultPoint("worker.before_outcome");
  const absl::Status written = WriteOutcome(assignment, outcome);
  FaultPoint("worker.after_outcome");
  if (!written.ok()) spdlog::error("{}", std::string(written.message()));
  internal::WorkerEvent last;
  *last.mutable_outcome() = outcome;
  reporter.Record(std::move(last));
  if (reporter.WaitUntilAcknowledged(kFarewellLimit)) return 0;
  spdlog::warn("the daemon is away and has not stored the outcome; it is in outcome.pb");
  return written.ok() ? 0 : kExitFiles;
}

// The GPU does not answer, and the training thread will not return from waiting for it.
[[noreturn]] void LeaveHung(const internal::Assignment& assignment, absl::Duration silent,
                            Reporter& reporter) {
  const absl::Status status =
      Error(absl::StatusCode::kUnavailable, reason::kDeviceFailed,
            absl::StrCat(
                "the job has not got on for ", absl::ToInt64Seconds(silent), " s on ",
                assignment.device(),
                ", far longer than ever before: the GPU no longer answers; look for Xid lines in "
                "dmesg, the card may need a reset or a restart of the machine"),
            {{"device", assignment.device()}, {"fault", "hardware"}});
  spdlog::error("{}", std::string(status.message()));
  const int code = Farewell(assignment, FailedOutcome(status), reporter);
  spdlog::default_logger()->flush();
  _exit(code);  // Destructors would wait for the card.
}

internal::AttemptOutcome RunWatched(const internal::Assignment& assignment, JobObserver& observer,
                                    Reporter& reporter) {
  std::optional<StepWatchdog> watchdog;
  // Steps on the CPU may take any time, and nothing but our own bugs can hang them.
  if (assignment.train().device().kind() == v1::DEVICE_CHOICE_CUDA) {
    watchdog.emplace(WatchdogLimits(), [&assignment, &reporter](absl::Duration silent) {
      LeaveHung(assignment, silent, reporter);
    });
    observer.SetWatchdog(&*watchdog);
  }
  internal::AttemptOutcome outcome = RunAttempt(assignment, observer);
  observer.SetWatchdog(nullptr);
  return outcome;
}

int Run(const std::string& assignment_path) {
  const std::atomic<bool>* stop_requested = SetUpProcess();
  SetUpLog();
  const absl::StatusOr<internal::Assignment> assignment = ReadAssignment(assignment_path);
  if (!assignment.ok()) return Fail(kExitUsage, assignment.status());

  if (assignment->confined()) {
    if (absl::Status confined = ConfineProcess(); !confined.ok()) {
      spdlog::warn("the worker is not confined: {}", std::string(confined.message()));
    }
  }
  if (assignment->has_calibration()) {
    const absl::Status measured = RunCalibration(*assignment);
    return measured.ok() ? 0 : Fail(kExitFiles, measured);
  }

  // Before anything else is touched: two workers of one job must never write its files.
  const ProcessIdentity self = SelfIdentity();
  const absl::StatusOr<LockFile> lock = LockJob(*assignment, self);
  if (!lock.ok()) return Fail(kExitLocked, lock.status());
  FaultPoint("worker.locked");
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
  JobObserver observer(assignment->job(), assignment->attempt(),
                       AttemptDirectory(*assignment) + "/trace.json", &reporter, stop_requested);

  const internal::AttemptOutcome outcome = RunWatched(*assignment, observer, reporter);
  if (outcome.has_error()) spdlog::error("{}", outcome.error().message());
  spdlog::info("outcome: {}", internal::AttemptResult_Name(outcome.result()));

  return Farewell(*assignment, outcome, reporter);
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
