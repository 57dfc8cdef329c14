// All that penstockd must not forget, in one SQLite file: jobs, attempts, events, checkpoints, the
// replies of calls that carried a request_id, and (access_store.h) tokens and the audit log.
//
// Invariants
//  1. Each change of a job is one transaction that checks the state it starts from and writes the
//     new row, its event and (if the call has an id) its reply. What was replied is on disk.
//  2. Events of all jobs share one ascending sequence (a cursor's `event`); those of one job are
//     also numbered 1, 2, 3 ... without gap.
//  3. There is exactly one connection in one process: WAL with two connections can lose commits in
//     SQLite before 3.51.3 (the "WAL-reset" race). locking_mode=EXCLUSIVE keeps others out.
// Thread-compatible; belongs to the control thread. Metrics and logs are in files beside it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/internal/worker.pb.h"
#include "penstock/v1/job.pb.h"
#include "server/access/owner_index.h"
#include "server/store/access_store.h"
#include "server/store/job_board.h"
#include "server/store/sqlite.h"

namespace penstock::server {

struct StoredJob {
  int64_t row = 0;  // ascending in order of creation
  v1::Job job{};
  // Attempts whose worker died. An attempt that never had a worker does not count against
  // limits.max_attempts.
  int32_t worker_deaths = 0;
};

// A reply to keep for calls that repeat the request.
struct RequestRecord {
  std::string method;
  std::string id;
  std::string hash;   // of the request without its id
  std::string reply;  // serialized response message
};

// Inside the transaction of its effect.
absl::Status WriteRequest(Database& database, const RequestRecord& request);

struct StoredEvent {
  uint64_t cursor = 0;
  // One of the events that are stored is set; the cursor is not.
  v1::WatchJobsResponse message{};
};

struct StoredAttempt {
  uint64_t acknowledged = 0;  // highest event number stored here
  std::optional<internal::AttemptOutcome> outcome{};
};

// The device time of an attempt of a training job.
struct EndedDeviceUse {
  std::string owner{};
  v1::DeviceKind kind = v1::DEVICE_KIND_CPU;
  int64_t end_unix_ms = 0;
  int64_t ms = 0;
};
// What ends with this move of a job, by the run_seconds that it adds.
std::optional<EndedDeviceUse> DeviceUseThatEnds(const v1::Job& before, const v1::Job& after);

class JobStore {
 public:
  // Opens or creates the file, checks it and migrates it. Refusals, none of which changes the
  // file: DataLoss / STORE_CORRUPT for a damaged one, FailedPrecondition / STORE_CORRUPT for one
  // of a newer version, FailedPrecondition / CONFIG_INVALID on a network file system.
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(const std::string& path);

  // ---- Requests ----
  // The reply to give again, or nothing if the id is new. AlreadyExists / REQUEST_ID_REUSED if it
  // came with other content.
  absl::StatusOr<std::optional<std::string>> FindReply(const std::string& method,
                                                       const std::string& id,
                                                       const std::string& hash);
  // Forgets replies older than `before_unix_seconds`, and all but about the newest `keep`.
  absl::Status PruneRequests(int64_t before_unix_seconds, int64_t keep);

  // ---- Jobs ----
  // All of them or none. AlreadyExists / JOB_EXISTS if a name is taken.
  absl::Status InsertJobs(const std::vector<v1::Job>& jobs, const RequestRecord* request);
  // Writes `after` if the job is in state `from` and CanMove(from, after.state()), else
  // FailedPrecondition / JOB_STATE_CONFLICT. Moving to STARTING also creates the row of attempt
  // after.attempt(), and what DeviceUseThatEnds() says is kept.
  absl::Status MoveJob(v1::JobState from, const v1::Job& after, int32_t worker_deaths,
                       const RequestRecord* request = nullptr);
  // Keeps a reply of a call that changed nothing (cancelling a job that is being cancelled).
  absl::Status InsertRequest(const RequestRecord& request);
  absl::Status DeleteJob(const std::string& name, const RequestRecord* request);
  // NotFound / JOB_NOT_FOUND.
  absl::StatusOr<StoredJob> GetJob(const std::string& name);
  absl::StatusOr<std::vector<std::string>> JobNames();
  // Jobs that have not ended, oldest first.
  absl::StatusOr<std::vector<StoredJob>> UnfinishedJobs();

  // ---- Device time ----
  // Oldest first.
  absl::StatusOr<std::vector<EndedDeviceUse>> DeviceUses();
  // Forgets what ended before.
  absl::Status PruneDeviceUses(int64_t before_unix_ms);

  // ---- Attempts and what workers report ----
  absl::StatusOr<StoredAttempt> GetAttempt(const std::string& name, int32_t attempt);
  absl::Status Acknowledge(const std::string& name, int32_t attempt, uint64_t number);
  // Each of these also acknowledges event `number` of the attempt. With number 0 (found in a
  // file, not reported) the count stays.
  absl::Status AddCheckpoint(const std::string& name, int32_t attempt, uint64_t number,
                             const v1::Checkpoint& checkpoint);
  absl::Status RemoveCheckpoint(const std::string& name, int32_t attempt, uint64_t number,
                                int64_t step, const RequestRecord* request = nullptr);
  absl::Status SetOutcome(const std::string& name, int32_t attempt, uint64_t number,
                          const internal::AttemptOutcome& outcome);
  // One that changes nothing of the job: checkpoint_failed, plan_missed.
  absl::Status AddEvent(const std::string& name, int32_t attempt, uint64_t number,
                        v1::WatchJobsResponse event);
  // An event of the job that has the device; acknowledges nothing.
  absl::Status AddDeviceEvent(const std::string& name, const v1::Device& device);

  // ---- Checkpoints ----
  // By step, above `after_step`.
  absl::StatusOr<std::vector<v1::Checkpoint>> ListCheckpoints(const std::string& name,
                                                              int64_t after_step, int64_t limit);
  // NotFound / CHECKPOINT_NOT_FOUND.
  absl::StatusOr<v1::Checkpoint> GetCheckpoint(const std::string& name, int64_t step);
  // Of the newest jobs, newest first.
  absl::StatusOr<std::vector<v1::Checkpoint>> RecentCheckpoints(int64_t limit);

  // ---- Events ----
  // Events after `cursor`, of one job or (empty `name`) of all, about `max_bytes`, at least one.
  absl::StatusOr<std::vector<StoredEvent>> EventsAfter(uint64_t cursor, const std::string& name,
                                                       int64_t limit, int64_t max_bytes);
  // Forgets all but the newest `keep` events of each job. Who reads from before them begins with
  // the oldest that is left.
  absl::Status PruneEvents(int64_t keep);
  // The highest sequence number ever given.
  absl::StatusOr<uint64_t> LastEvent();

  // Tokens and the audit log.
  AccessStore& access() { return *access_; }
  // The jobs that are there, to be read by any thread.
  JobBoard& board() { return board_; }
  // Of the jobs and sweeps that are there, and of what else has one; in step with the store.
  OwnerIndex& owners() { return owners_; }
  // The one connection, for the tables of upload_store.h.
  Database& database() { return *database_; }

 private:
  explicit JobStore(std::unique_ptr<Database> database);
  absl::Status LoadIndexes();
  absl::Status Migrate();
  absl::StatusOr<int64_t> RowOf(const std::string& name);
  // What the board gets of a new job once its transaction has ended.
  struct BoardRow {
    int64_t row = 0;
    std::string message;
  };
  absl::StatusOr<BoardRow> InsertRow(const v1::Job& job);
  absl::Status InsertEvent(int64_t row, v1::WatchJobsResponse message);
  absl::Status RaiseAcknowledged(int64_t row, int32_t attempt, uint64_t number);

  std::unique_ptr<Database> database_;
  std::unique_ptr<AccessStore> access_;
  JobBoard board_;
  OwnerIndex owners_;
};

}  // namespace penstock::server
