#include "server/store/job_store.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "google/protobuf/util/time_util.h"
#include "server/store/job_state.h"
#include "server/store/schema.h"

namespace penstock::server {
using google::protobuf::util::TimeUtil;
namespace {

// WAL needs memory-mapped locks that network file systems do not give.
absl::Status RefuseNetworkFileSystem(const std::string& path) {
  constexpr uint32_t kNetwork[] = {NFS_SUPER_MAGIC,       SMB_SUPER_MAGIC,    SMB2_SUPER_MAGIC,
                                   CIFS_SUPER_MAGIC,      CEPH_SUPER_MAGIC,
                                   /*Lustre*/ 0x0BD00BD0, /*GPFS*/ 0x47504653};
  struct statfs info {};
  const std::string directory = path.substr(0, path.rfind('/') + 1);
  if (statfs(directory.empty() ? "." : directory.c_str(), &info) != 0) return absl::OkStatus();
  for (const uint32_t magic : kNetwork) {
    if (static_cast<uint32_t>(info.f_type) == magic) {
      return Error(absl::StatusCode::kFailedPrecondition, reason::kConfigInvalid,
                   absl::StrCat(directory,
                                " is on a network file system, where the job store "
                                "can be damaged. Set state_directory to a local disk"),
                   {{"field", "state_directory"}, {"found", directory}});
    }
  }
  return absl::OkStatus();
}

absl::Status QuickCheck(Database& database) {
  Statement check(database, "PRAGMA quick_check(1)");
  absl::StatusOr<bool> row = check.Step();
  if (row.ok() && *row && check.Bytes(0) == "ok") return absl::OkStatus();
  const std::string detail =
      row.ok() ? (*row ? check.Bytes(0) : "no answer") : std::string(row.status().message());
  return Error(absl::StatusCode::kDataLoss, reason::kStoreCorrupt,
               absl::StrCat(database.path(), " is damaged: ", detail), {{"file", database.path()}});
}

absl::Status WithWayOut(absl::Status status, const std::string& path) {
  if (status.code() != absl::StatusCode::kDataLoss) return status;
  return Error(absl::StatusCode::kDataLoss, reason::kStoreCorrupt,
               absl::StrCat(status.message(),
                            ". penstockd does not repair or remove it: put a "
                            "backup in its place (with its -wal file), or move it away together "
                            "with jobs/ to begin with an empty store"),
               {{"file", path}});
}

absl::Status NotFound(const std::string& name) {
  return Error(absl::StatusCode::kNotFound, reason::kJobNotFound,
               absl::StrCat("there is no ", name, "; ListJobs shows what there is"),
               {{"job", name}});
}

absl::Status BadRow(const char* table) {
  return Error(absl::StatusCode::kDataLoss, reason::kStoreCorrupt,
               absl::StrCat("a message in table ", table, " of the job store cannot be read"));
}

absl::StatusOr<StoredJob> ReadJob(const Statement& row) {
  StoredJob stored{.row = row.Int64(0), .worker_deaths = static_cast<int32_t>(row.Int64(1))};
  if (!stored.job.ParseFromString(row.Bytes(2))) return BadRow("job");
  return stored;
}
constexpr const char* kSelectJob = "SELECT row, worker_deaths, message FROM job ";

}  // namespace

absl::Status WriteRequest(Database& database, const RequestRecord& request) {
  return Statement(database,
                   "INSERT INTO request (method, id, hash, reply, unix_seconds) "
                   "VALUES (?, ?, ?, ?, ?)")
      .Bind(request.method)
      .Bind(request.id)
      .Bind(request.hash)
      .BindBlob(request.reply)
      .Bind(static_cast<int64_t>(time(nullptr)))
      .Run();
}

std::optional<EndedDeviceUse> DeviceUseThatEnds(const v1::Job& before, const v1::Job& after) {
  if (!after.has_train() || !HasWorker(before.state()) || HasWorker(after.state())) {
    return std::nullopt;
  }
  const auto ms = static_cast<int64_t>((after.run_seconds() - before.run_seconds()) * 1000);
  if (ms <= 0) return std::nullopt;
  const bool cuda = after.train().device().kind() == v1::DEVICE_CHOICE_CUDA;
  return EndedDeviceUse{
      .owner = after.owner(),
      .kind = cuda ? v1::DEVICE_KIND_CUDA : v1::DEVICE_KIND_CPU,
      .end_unix_ms = TimeUtil::TimestampToMilliseconds(after.attempt_start_time()) + ms,
      .ms = ms};
}

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Open(const std::string& path) {
  PENSTOCK_RETURN_IF_ERROR(RefuseNetworkFileSystem(path));
  absl::StatusOr<std::unique_ptr<Database>> opened = Database::Open(path);
  if (!opened.ok()) return WithWayOut(opened.status(), path);
  std::unique_ptr<Database> database = *std::move(opened);
  const auto prepare = [&]() -> absl::Status {
    // EXCLUSIVE before WAL: the WAL index is then in our memory and no second process gets in.
    PENSTOCK_RETURN_IF_ERROR(database->Execute("PRAGMA locking_mode=EXCLUSIVE"));
    PENSTOCK_RETURN_IF_ERROR(QuickCheck(*database));
    PENSTOCK_RETURN_IF_ERROR(database->Execute("PRAGMA journal_mode=WAL"));
    PENSTOCK_RETURN_IF_ERROR(database->Execute("PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON"));
    return MigrateSchema(*database);
  };
  if (absl::Status status = prepare(); !status.ok()) return WithWayOut(status, path);
  std::unique_ptr<JobStore> store(new JobStore(std::move(database)));
  if (absl::Status loaded = store->LoadIndexes(); !loaded.ok()) return WithWayOut(loaded, path);
  return store;
}

JobStore::JobStore(std::unique_ptr<Database> database)
    : database_(std::move(database)), access_(std::make_unique<AccessStore>(*database_)) {
  database_->set_commit_hook(access_.get());
}

absl::Status JobStore::LoadIndexes() {
  Statement list(*database_, "SELECT row, name, state, owner, sweep, message FROM job");
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, list.Step());
    if (!more) return absl::OkStatus();
    JobKeys keys = {.name = list.Bytes(1),
                    .state = static_cast<v1::JobState>(list.Int64(2)),
                    .owner = list.Bytes(3),
                    .sweep = list.Bytes(4)};
    owners_.Set(keys.name, keys.owner);
    if (!keys.sweep.empty()) owners_.Set(keys.sweep, keys.owner);
    board_.Put(list.Int64(0), std::move(keys), list.Bytes(5));
  }
}

// ---- Requests ----

absl::StatusOr<std::optional<std::string>> JobStore::FindReply(const std::string& method,
                                                               const std::string& id,
                                                               const std::string& hash) {
  Statement find(*database_, "SELECT hash, reply FROM request WHERE method = ? AND id = ?");
  PENSTOCK_ASSIGN_OR_RETURN(const bool found, find.Bind(method).Bind(id).Step());
  if (!found) return std::nullopt;
  if (find.Bytes(0) != hash) {
    return Error(absl::StatusCode::kAlreadyExists, reason::kRequestIdReused,
                 absl::StrCat("request_id '", id, "' was used for a ", method,
                              " with other content; use a new id for a new request"),
                 {{"request_id", id}, {"method", method}});
  }
  return find.Bytes(1);
}

absl::Status JobStore::PruneRequests(int64_t before_unix_seconds, int64_t keep) {
  return Statement(*database_,
                   "DELETE FROM request WHERE unix_seconds < max(?, ifnull((SELECT unix_seconds "
                   "FROM request ORDER BY unix_seconds DESC LIMIT 1 OFFSET ?), 0))")
      .Bind(before_unix_seconds)
      .Bind(keep)
      .Run();
}

absl::Status JobStore::InsertRequest(const RequestRecord& request) {
  PENSTOCK_ASSIGN_OR_RETURN(auto transaction, Transaction::Begin(*database_));
  PENSTOCK_RETURN_IF_ERROR(WriteRequest(*database_, request));
  return transaction->Commit();
}

// ---- Jobs ----

absl::Status JobStore::InsertJobs(const std::vector<v1::Job>& jobs, const RequestRecord* request) {
  PENSTOCK_ASSIGN_OR_RETURN(auto transaction, Transaction::Begin(*database_));
  std::vector<BoardRow> rows(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(rows[i], InsertRow(jobs[i]));
  }
  if (request != nullptr) PENSTOCK_RETURN_IF_ERROR(WriteRequest(*database_, *request));
  const auto resource = [](const v1::Job& job) {
    return job.has_sweep_point() ? job.sweep_point().sweep() : job.name();
  };
  if (!jobs.empty()) NameResource(resource(jobs.front()));
  PENSTOCK_RETURN_IF_ERROR(transaction->Commit());
  for (size_t i = 0; i < jobs.size(); ++i) {
    owners_.Set(jobs[i].name(), jobs[i].owner());
    owners_.Set(resource(jobs[i]), jobs[i].owner());
    board_.Put(rows[i].row, KeysOf(jobs[i]), std::move(rows[i].message));
  }
  return absl::OkStatus();
}

absl::StatusOr<JobStore::BoardRow> JobStore::InsertRow(const v1::Job& job) {
  if (RowOf(job.name()).ok()) {
    return Error(absl::StatusCode::kAlreadyExists, reason::kJobExists,
                 absl::StrCat(job.name(), " exists; choose another job_id or leave it empty"),
                 {{"job", job.name()}, {"field", "job_id"}});
  }
  std::string bytes = job.SerializeAsString();
  PENSTOCK_RETURN_IF_ERROR(
      Statement(*database_,
                "INSERT INTO job (name, state, owner, sweep, message) VALUES (?, ?, ?, ?, ?)")
          .Bind(job.name())
          .Bind(static_cast<int64_t>(job.state()))
          .Bind(job.owner())
          .Bind(job.sweep_point().sweep())
          .BindBlob(bytes)
          .Run());
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t row, RowOf(job.name()));
  v1::WatchJobsResponse event;
  *event.mutable_state_changed()->mutable_job() = job;
  PENSTOCK_RETURN_IF_ERROR(InsertEvent(row, std::move(event)));
  return BoardRow{row, std::move(bytes)};
}

absl::Status JobStore::MoveJob(v1::JobState from, const v1::Job& after, int32_t worker_deaths,
                               const RequestRecord* request) {
  PENSTOCK_ASSIGN_OR_RETURN(auto transaction, Transaction::Begin(*database_));
  PENSTOCK_ASSIGN_OR_RETURN(const StoredJob before, GetJob(after.name()));
  if (before.job.state() != from || !CanMove(from, after.state())) {
    return Error(
        absl::StatusCode::kFailedPrecondition, reason::kJobStateConflict,
        absl::StrCat(after.name(), " is ", StateName(before.job.state()), ", so it cannot go from ",
                     StateName(from), " to ", StateName(after.state())),
        {{"job", after.name()}, {"state", StateName(before.job.state())}});
  }
  std::string bytes = after.SerializeAsString();
  PENSTOCK_RETURN_IF_ERROR(
      Statement(*database_,
                "UPDATE job SET state = ?, worker_deaths = ?, message = ? WHERE row = ?")
          .Bind(static_cast<int64_t>(after.state()))
          .Bind(static_cast<int64_t>(worker_deaths))
          .BindBlob(bytes)
          .Bind(before.row)
          .Run());
  if (after.state() == v1::JOB_STATE_STARTING) {
    PENSTOCK_RETURN_IF_ERROR(
        Statement(*database_, "INSERT INTO attempt (job, number) VALUES (?, ?)")
            .Bind(before.row)
            .Bind(static_cast<int64_t>(after.attempt()))
            .Run());
  }
  if (const auto use = DeviceUseThatEnds(before.job, after)) {
    PENSTOCK_RETURN_IF_ERROR(
        Statement(*database_,
                  "INSERT INTO device_use (end_unix_ms, owner, kind, ms) VALUES (?, ?, ?, ?)")
            .Bind(use->end_unix_ms)
            .Bind(use->owner)
            .Bind(static_cast<int64_t>(use->kind))
            .Bind(use->ms)
            .Run());
  }
  v1::WatchJobsResponse event;
  *event.mutable_state_changed()->mutable_job() = after;
  PENSTOCK_RETURN_IF_ERROR(InsertEvent(before.row, std::move(event)));
  if (request != nullptr) PENSTOCK_RETURN_IF_ERROR(WriteRequest(*database_, *request));
  PENSTOCK_RETURN_IF_ERROR(transaction->Commit());
  board_.Put(before.row, KeysOf(after), std::move(bytes));
  return absl::OkStatus();
}

absl::Status JobStore::DeleteJob(const std::string& name, const RequestRecord* request) {
  PENSTOCK_ASSIGN_OR_RETURN(auto transaction, Transaction::Begin(*database_));
  PENSTOCK_ASSIGN_OR_RETURN(const StoredJob stored, GetJob(name));
  if (!IsFinal(stored.job.state())) {
    return Error(absl::StatusCode::kFailedPrecondition, reason::kJobStateConflict,
                 absl::StrCat(name, " is ", StateName(stored.job.state()),
                              "; cancel it and wait for its end before deleting it"),
                 {{"job", name}, {"state", StateName(stored.job.state())}});
  }
  PENSTOCK_RETURN_IF_ERROR(
      Statement(*database_, "DELETE FROM job WHERE row = ?").Bind(stored.row).Run());
  const std::string& sweep = stored.job.sweep_point().sweep();
  Statement others(*database_, "SELECT 1 FROM job WHERE sweep = ?");
  PENSTOCK_ASSIGN_OR_RETURN(const bool sweep_stays, others.Bind(sweep).Step());
  if (request != nullptr) PENSTOCK_RETURN_IF_ERROR(WriteRequest(*database_, *request));
  PENSTOCK_RETURN_IF_ERROR(transaction->Commit());
  owners_.Remove(name);
  if (!sweep_stays) owners_.Remove(sweep);
  board_.Remove(name);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> JobStore::RowOf(const std::string& name) {
  Statement find(*database_, "SELECT row FROM job WHERE name = ?");
  PENSTOCK_ASSIGN_OR_RETURN(const bool found, find.Bind(name).Step());
  if (!found) return NotFound(name);
  return find.Int64(0);
}

absl::StatusOr<StoredJob> JobStore::GetJob(const std::string& name) {
  Statement find(*database_, absl::StrCat(kSelectJob, "WHERE name = ?"));
  PENSTOCK_ASSIGN_OR_RETURN(const bool found, find.Bind(name).Step());
  if (!found) return NotFound(name);
  return ReadJob(find);
}

absl::StatusOr<std::vector<std::string>> JobStore::JobNames() {
  Statement list(*database_, "SELECT name FROM job");
  std::vector<std::string> names;
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, list.Step());
    if (!more) return names;
    names.push_back(list.Bytes(0));
  }
}

absl::StatusOr<std::vector<StoredJob>> JobStore::UnfinishedJobs() {
  Statement list(*database_, absl::StrCat(kSelectJob, "WHERE state NOT IN (",
                                          v1::JOB_STATE_SUCCEEDED, ",", v1::JOB_STATE_FAILED, ",",
                                          v1::JOB_STATE_CANCELLED, ") ORDER BY row"));
  std::vector<StoredJob> jobs;
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, list.Step());
    if (!more) return jobs;
    PENSTOCK_ASSIGN_OR_RETURN(StoredJob stored, ReadJob(list));
    jobs.push_back(std::move(stored));
  }
}

// ---- Device time ----

absl::StatusOr<std::vector<EndedDeviceUse>> JobStore::DeviceUses() {
  Statement list(*database_,
                 "SELECT end_unix_ms, owner, kind, ms FROM device_use ORDER BY end_unix_ms");
  std::vector<EndedDeviceUse> uses;
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, list.Step());
    if (!more) return uses;
    uses.push_back({.owner = list.Bytes(1),
                    .kind = static_cast<v1::DeviceKind>(list.Int64(2)),
                    .end_unix_ms = list.Int64(0),
                    .ms = list.Int64(3)});
  }
}

absl::Status JobStore::PruneDeviceUses(int64_t before_unix_ms) {
  return Statement(*database_, "DELETE FROM device_use WHERE end_unix_ms < ?")
      .Bind(before_unix_ms)
      .Run();
}

// ---- Attempts and what workers report ----

absl::StatusOr<StoredAttempt> JobStore::GetAttempt(const std::string& name, int32_t attempt) {
  Statement find(*database_,
                 "SELECT acknowledged, outcome IS NOT NULL, outcome FROM attempt "
                 "WHERE job = (SELECT row FROM job WHERE name = ?) AND number = ?");
  PENSTOCK_ASSIGN_OR_RETURN(const bool found,
                            find.Bind(name).Bind(static_cast<int64_t>(attempt)).Step());
  if (!found) return NotFound(absl::StrCat(name, ", attempt ", attempt));
  StoredAttempt stored{.acknowledged = static_cast<uint64_t>(find.Int64(0))};
  if (find.Int64(1) != 0) {
    if (!stored.outcome.emplace().ParseFromString(find.Bytes(2))) return BadRow("attempt");
  }
  return stored;
}

absl::Status JobStore::RaiseAcknowledged(int64_t row, int32_t attempt, uint64_t number) {
  return Statement(*database_,
                   "UPDATE attempt SET acknowledged = max(acknowledged, ?) "
                   "WHERE job = ? AND number = ?")
      .Bind(static_cast<int64_t>(number))
      .Bind(row)
      .Bind(static_cast<int64_t>(attempt))
      .Run();
}

absl::Status JobStore::Acknowledge(const std::string& name, int32_t attempt, uint64_t number) {
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t row, RowOf(name));
  return RaiseAcknowledged(row, attempt, number);
}

absl::Status JobStore::AddCheckpoint(const std::string& name, int32_t attempt, uint64_t number,
                                     const v1::Checkpoint& checkpoint) {
  PENSTOCK_ASSIGN_OR_RETURN(auto transaction, Transaction::Begin(*database_));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t row, RowOf(name));
  PENSTOCK_RETURN_IF_ERROR(
      Statement(*database_,
                "INSERT OR REPLACE INTO checkpoint (job, step, message) VALUES (?, ?, ?)")
          .Bind(row)
          .Bind(checkpoint.step())
          .BindBlob(checkpoint.SerializeAsString())
          .Run());
  v1::WatchJobsResponse event;
  *event.mutable_checkpoint_saved()->mutable_checkpoint() = checkpoint;
  PENSTOCK_RETURN_IF_ERROR(InsertEvent(row, std::move(event)));
  PENSTOCK_RETURN_IF_ERROR(RaiseAcknowledged(row, attempt, number));
  return transaction->Commit();
}

absl::Status JobStore::RemoveCheckpoint(const std::string& name, int32_t attempt, uint64_t number,
                                        int64_t step, const RequestRecord* request) {
  PENSTOCK_ASSIGN_OR_RETURN(auto transaction, Transaction::Begin(*database_));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t row, RowOf(name));
  PENSTOCK_RETURN_IF_ERROR(
      Statement(*database_, "DELETE FROM checkpoint WHERE job = ? AND step = ?")
          .Bind(row)
          .Bind(step)
          .Run());
  PENSTOCK_RETURN_IF_ERROR(RaiseAcknowledged(row, attempt, number));
  if (request != nullptr) PENSTOCK_RETURN_IF_ERROR(WriteRequest(*database_, *request));
  return transaction->Commit();
}

absl::Status JobStore::AddEvent(const std::string& name, int32_t attempt, uint64_t number,
                                v1::WatchJobsResponse event) {
  PENSTOCK_ASSIGN_OR_RETURN(auto transaction, Transaction::Begin(*database_));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t row, RowOf(name));
  PENSTOCK_RETURN_IF_ERROR(InsertEvent(row, std::move(event)));
  PENSTOCK_RETURN_IF_ERROR(RaiseAcknowledged(row, attempt, number));
  return transaction->Commit();
}

absl::Status JobStore::AddDeviceEvent(const std::string& name, const v1::Device& device) {
  PENSTOCK_ASSIGN_OR_RETURN(auto transaction, Transaction::Begin(*database_));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t row, RowOf(name));
  v1::WatchJobsResponse event;
  *event.mutable_device_changed()->mutable_device() = device;
  PENSTOCK_RETURN_IF_ERROR(InsertEvent(row, std::move(event)));
  return transaction->Commit();
}

absl::Status JobStore::SetOutcome(const std::string& name, int32_t attempt, uint64_t number,
                                  const internal::AttemptOutcome& outcome) {
  PENSTOCK_ASSIGN_OR_RETURN(auto transaction, Transaction::Begin(*database_));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t row, RowOf(name));
  PENSTOCK_RETURN_IF_ERROR(
      Statement(*database_, "UPDATE attempt SET outcome = ? WHERE job = ? AND number = ?")
          .BindBlob(outcome.SerializeAsString())
          .Bind(row)
          .Bind(static_cast<int64_t>(attempt))
          .Run());
  PENSTOCK_RETURN_IF_ERROR(RaiseAcknowledged(row, attempt, number));
  return transaction->Commit();
}

// ---- Checkpoints ----

absl::StatusOr<std::vector<v1::Checkpoint>> JobStore::ListCheckpoints(const std::string& name,
                                                                      int64_t after_step,
                                                                      int64_t limit) {
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t row, RowOf(name));
  Statement list(*database_,
                 "SELECT message FROM checkpoint WHERE job = ? AND step > ? ORDER BY step LIMIT ?");
  list.Bind(row).Bind(after_step).Bind(limit);
  std::vector<v1::Checkpoint> checkpoints;
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, list.Step());
    if (!more) return checkpoints;
    if (!checkpoints.emplace_back().ParseFromString(list.Bytes(0))) return BadRow("checkpoint");
  }
}

absl::StatusOr<std::vector<v1::Checkpoint>> JobStore::RecentCheckpoints(int64_t limit) {
  Statement list(*database_, "SELECT message FROM checkpoint ORDER BY job DESC, step DESC LIMIT ?");
  list.Bind(limit);
  std::vector<v1::Checkpoint> checkpoints;
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, list.Step());
    if (!more) return checkpoints;
    if (!checkpoints.emplace_back().ParseFromString(list.Bytes(0))) return BadRow("checkpoint");
  }
}

absl::StatusOr<v1::Checkpoint> JobStore::GetCheckpoint(const std::string& name, int64_t step) {
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t row, RowOf(name));
  Statement find(*database_, "SELECT message FROM checkpoint WHERE job = ? AND step = ?");
  PENSTOCK_ASSIGN_OR_RETURN(const bool found, find.Bind(row).Bind(step).Step());
  if (!found) {
    return Error(absl::StatusCode::kNotFound, reason::kCheckpointNotFound,
                 absl::StrCat(name, " has no checkpoint of step ", step,
                              "; ListCheckpoints shows what it has"),
                 {{"job", name}, {"step", absl::StrCat(step)}});
  }
  v1::Checkpoint checkpoint;
  if (!checkpoint.ParseFromString(find.Bytes(0))) return BadRow("checkpoint");
  return checkpoint;
}

// ---- Events ----

absl::Status JobStore::InsertEvent(int64_t row, v1::WatchJobsResponse message) {
  PENSTOCK_RETURN_IF_ERROR(
      Statement(*database_, "UPDATE job SET last_event = last_event + 1 WHERE row = ?")
          .Bind(row)
          .Run());
  Statement read(*database_, "SELECT last_event FROM job WHERE row = ?");
  PENSTOCK_RETURN_IF_ERROR(read.Bind(row).Step().status());
  const int64_t sequence = read.Int64(0);
  if (message.has_state_changed()) {
    message.mutable_state_changed()->set_sequence(static_cast<uint64_t>(sequence));
  } else if (message.has_device_changed()) {
    message.mutable_device_changed()->set_sequence(static_cast<uint64_t>(sequence));
  } else if (message.has_plan_missed()) {
    message.mutable_plan_missed()->set_sequence(static_cast<uint64_t>(sequence));
  } else if (message.has_checkpoint_failed()) {
    message.mutable_checkpoint_failed()->set_sequence(static_cast<uint64_t>(sequence));
  } else {
    message.mutable_checkpoint_saved()->set_sequence(static_cast<uint64_t>(sequence));
  }
  return Statement(*database_, "INSERT INTO event (job, sequence, message) VALUES (?, ?, ?)")
      .Bind(row)
      .Bind(sequence)
      .BindBlob(message.SerializeAsString())
      .Run();
}

absl::StatusOr<std::vector<StoredEvent>> JobStore::EventsAfter(uint64_t cursor,
                                                               const std::string& name,
                                                               int64_t limit, int64_t max_bytes) {
  const auto after = static_cast<int64_t>(std::min(cursor, uint64_t{INT64_MAX}));
  Statement list(*database_, name.empty()
                                 ? "SELECT cursor, message FROM event WHERE cursor > ? "
                                   "ORDER BY cursor LIMIT ?"
                                 : "SELECT cursor, message FROM event WHERE cursor > ? AND "
                                   "job = (SELECT row FROM job WHERE name = ?) "
                                   "ORDER BY cursor LIMIT ?");
  list.Bind(after);
  if (!name.empty()) list.Bind(name);
  list.Bind(limit);
  std::vector<StoredEvent> events;
  int64_t bytes = 0;
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, list.Step());
    if (!more || bytes >= max_bytes) return events;
    StoredEvent event{.cursor = static_cast<uint64_t>(list.Int64(0))};
    const std::string message = list.Bytes(1);
    if (!event.message.ParseFromString(message)) return BadRow("event");
    bytes += static_cast<int64_t>(message.size());
    events.push_back(std::move(event));
  }
}

absl::Status JobStore::PruneEvents(int64_t keep) {
  return Statement(*database_,
                   "DELETE FROM event WHERE sequence <= "
                   "(SELECT last_event FROM job WHERE job.row = event.job) - ?")
      .Bind(keep)
      .Run();
}

absl::StatusOr<uint64_t> JobStore::LastEvent() {
  Statement read(*database_, "SELECT seq FROM sqlite_sequence WHERE name = 'event'");
  PENSTOCK_ASSIGN_OR_RETURN(const bool found, read.Step());
  return found ? static_cast<uint64_t>(read.Int64(0)) : uint64_t{0};
}

}  // namespace penstock::server
