// All jobs as clients see them, in memory, for whoever only reads: GetJob and ListJobs answer from
// here on their own thread and wait neither for the disk nor for a decision.
//
// JobStore puts each job here after the transaction that changed it, before anybody is told of the
// change; what memory alone knows of a job that has not ended comes from JobTable. Jobs lie here as
// they lie in the database, serialized: a few KB each.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "penstock/v1/job.pb.h"

namespace penstock::server {

// What is not in the store.
struct LivePart {
  std::optional<v1::JobProgress> progress{};
  // While the job is queued: from 1, and what it waits for.
  int64_t queue_position = 0;
  v1::StateReason wait_reason = v1::STATE_REASON_UNSPECIFIED;
  std::string wait_message{};
};
// Makes of a stored job what clients see.
void AddLivePart(const LivePart& live, v1::Job& job);

// What jobs are found by.
struct JobKeys {
  std::string name;
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  std::string owner;
  std::string sweep;  // empty: of none
};
JobKeys KeysOf(const v1::Job& job);

struct JobQuery {
  int64_t before_row = INT64_MAX;
  std::vector<v1::JobState> states{};  // empty: all
  std::string owner{};                 // empty: all
  std::string sweep{};                 // empty: all
  int64_t limit = 0;
  int64_t max_bytes = INT64_MAX;  // about; at least one job is given
};
struct JobPage {
  int64_t last_row = 0;
  bool more = false;
};

// Thread-safe.
class JobBoard {
 public:
  // `message` is the serialized job. What was live of it is no more.
  void Put(int64_t row, JobKeys keys, std::string message);
  void Remove(const std::string& name);
  // Of a job that is there.
  void SetLive(const std::string& name, LivePart live);

  // NotFound / JOB_NOT_FOUND; DataLoss / STORE_CORRUPT for a message that cannot be read.
  absl::StatusOr<v1::Job> Get(const std::string& name) const;
  // Adds the jobs to `jobs`, newest first, without plan.phases. They are read where they are to
  // lie: a message of many jobs had better be on an arena.
  absl::StatusOr<JobPage> List(const JobQuery& query,
                               google::protobuf::RepeatedPtrField<v1::Job>& jobs) const;

 private:
  struct Entry {
    JobKeys keys;
    // Readers keep these while they parse, without the lock.
    std::shared_ptr<const std::string> message;
    std::shared_ptr<const LivePart> live;  // null: nothing
  };
  using Rows = std::map<int64_t, Entry>;
  struct Place {
    v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
    int64_t row = 0;
  };
  class Walk;

  static absl::Status Read(const Entry& entry, v1::Job& job);
  std::vector<Entry> Find(const JobQuery& query, JobPage& page) const;

  mutable absl::Mutex mutex_;
  // Most jobs of a store that has been used for long have ended, and who asks for those that wait
  // is not to walk past them.
  std::map<v1::JobState, Rows> by_state_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Place> places_ ABSL_GUARDED_BY(mutex_);  // by name
};

}  // namespace penstock::server
