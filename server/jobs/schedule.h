// Who starts, who waits for what, and who has to make room: a pure function over a snapshot.
//
// Order of the queue: by rank, then by fair share (queue_order.h). A job's rank is its priority,
// and one class more for every aging period that it has waited, so that jobs of a low priority are
// not passed for ever. A job keeps the rank it started with while it runs; one of a higher priority
// may make it yield, but no job more often than its max_preemptions, and after each time it waits
// out a pause. Later jobs start before one that waits if it starts no later for that (back_fill.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/v1/job.pb.h"
#include "server/access/quota.h"

namespace penstock::server {

// Training takes a whole device; exports take none but run one at a time.
enum class Lane : uint8_t { kDevice, kExport };
enum class Admission : uint8_t {
  kOpen,
  kHeld,      // by an admin: jobs may wait and none starts
  kMeasures,  // a device, alone
  kDraining,  // the daemon is about to end
};

// What a training job asks of its device. Exports ask for none.
struct DeviceNeed {
  v1::DeviceKind kind = v1::DEVICE_KIND_CPU;
  std::string uuid = {};                 // of the GPU it wants; empty: any
  int64_t bytes = 0;                     // of device memory; 0 on the CPU
  std::vector<std::string> failed = {};  // GPUs that failed under it
};
struct ScheduleDevice {
  std::string id;
  v1::DeviceKind kind = v1::DEVICE_KIND_CPU;
  int64_t job_bytes = 0;  // of a GPU: what a job can have of its memory
  v1::DeviceHealth health = v1::DEVICE_HEALTH_HEALTHY;
  std::string health_message = {};
};
// Whether the job could run there at some time: healthy, of the right kind, large enough.
bool CanRunOn(const DeviceNeed& need, const ScheduleDevice& device);

// A job that another one waits for.
struct ParentJob {
  std::string name;
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
};

struct QueuedJob {
  std::string name;
  std::string owner = {};
  Lane lane = Lane::kDevice;
  int64_t host_bytes = 0;
  DeviceNeed device = {};
  v1::Priority priority = v1::PRIORITY_NORMAL;
  int64_t waited_seconds = 0;    // in the queue
  int64_t back_off_seconds = 0;  // from now on; may be negative
  // What the owner has used of late of this kind of device, running jobs included.
  double owner_used_seconds = 0;
  std::optional<int64_t> seconds = {};  // that it runs at most; nobody knows
  std::vector<ParentJob> parents = {};
  v1::AfterRule after_rule = v1::AFTER_RULE_SUCCEEDED;
};
// Whether it has been asked to stop, and may be.
enum class Hold : uint8_t {
  kYields,  // to a job of a higher priority than its rank
  kKeeps,   // it has yielded often enough, or does not train
  kLeaves,  // it is stopping already
};
struct RunningJob {
  std::string name;
  std::string owner = {};
  Lane lane = Lane::kDevice;
  std::string device;  // empty for exports
  int64_t host_bytes = 0;
  int rank = v1::PRIORITY_NORMAL;
  Hold hold = Hold::kYields;
  std::optional<int64_t> seconds_left = {};  // nobody knows
};
struct ScheduleSnapshot {
  Admission admission = Admission::kOpen;
  std::string hold_message = {};  // why, while kHeld
  Quotas quotas = {};
  std::vector<ScheduleDevice> devices;
  int64_t host_memory_bytes = 0;
  int64_t aging_seconds = 0;                 // 0: ranks do not rise
  int64_t fair_share_half_life_seconds = 0;  // 0: what users have used does not matter
  std::vector<RunningJob> running;
  std::vector<QueuedJob> queued;  // oldest first
};
struct Start {
  std::string name;
  std::string device;
  friend bool operator==(const Start&, const Start&) = default;
};
struct Wait {
  std::string name;
  v1::StateReason reason = v1::STATE_REASON_UNSPECIFIED;
  std::string message;
};
struct Yield {
  std::string name;
  std::string to;  // the job that gets its place
  friend bool operator==(const Yield&, const Yield&) = default;
};
struct ScheduleDecision {
  std::vector<Start> starts;
  std::vector<Wait> waits;     // every queued job that does not start, in order of the queue
  std::vector<Yield> yields;   // running jobs to be asked to make room
  std::vector<Wait> dropouts;  // queued jobs to be cancelled: what they wait for will never come
};

// Each job gets the smallest free device that is large enough. A job that waits for a device or for
// memory keeps those after it from starting if that would delay it; one that waits for its owner's
// quota holds back nobody. Jobs are made to yield only if that makes room enough, those of the
// lowest rank first and of these the newest; what they leave behind goes to nobody else.
ScheduleDecision Schedule(const ScheduleSnapshot& snapshot);

// A job's place among others, after it has waited so long: see the head of this file. One above
// PRIORITY_HIGH is as far as it goes.
int Rank(v1::Priority priority, int64_t waited_seconds, int64_t aging_seconds);

// How long a job that has just yielded for the nth time waits before it may start again: half a
// minute, doubled each time, at most ten minutes.
int64_t PreemptionPauseSeconds(int32_t preemptions);

}  // namespace penstock::server
