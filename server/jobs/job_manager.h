// What clients ask for: the operations behind JobService and AdminService, and exports.
//
// Each mutating operation takes the reply it would give to a repeated request_id from the store
// first, and stores its own reply in the transaction of its effect. Creating a training job has
// two halves, for between them the spec is checked on another thread (reading config.json and
// headers may be slow): Begin, then the planner, then Finish, which checks again.
// Belongs to the control thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/admin_service.pb.h"
#include "penstock/v1/checkpoint_service.pb.h"
#include "penstock/v1/job.pb.h"
#include "server/jobs/checkpoint_manager.h"
#include "server/jobs/checkpoint_readers.h"
#include "server/jobs/job_table.h"
#include "server/jobs/worker_manager.h"

namespace penstock::server {

// A spec that can run: defaults filled in, memory laid out.
struct PlannedJob {
  v1::JobSpec spec;
  v1::JobPlan plan;
  std::vector<std::string> warnings;
};
// Refuses what could not run. Called on a thread of its own, one call at a time.
// `machine`: the name of a machine to plan for; empty: this one.
using SpecPlanner =
    std::function<absl::StatusOr<PlannedJob>(const v1::JobSpec& spec, const std::string& machine)>;
// Reads and tokenizes the data of a spec into `token_cache_directory`. Tells `go_on` now and then
// which part of the work is done, and ends early once that is false: nobody waits any more. Called
// on a thread of its own, one call at a time.
using DataInspector = std::function<absl::StatusOr<v1::InspectDataResponse>(
    const v1::InspectDataRequest& request, const std::string& token_cache_directory,
    const std::function<bool(double fraction)>& go_on)>;
// Whether a new directory may be made there: absolute, inside an allowed root, not existing. Gives
// the path with symbolic links resolved.
using OutputChecker =
    std::function<absl::StatusOr<std::string>(const std::string& path, const std::string& field)>;

struct JobManagerOptions {
  int64_t max_queued_jobs = 1000;
  std::string host_memory_limit_source;
};

// What one watch stream reads of the store at a time.
struct WatchBatch {
  std::vector<StoredEvent> events;
  uint64_t last_event = 0;     // of the whole store
  std::optional<v1::Job> job;  // as it is now; for streams of one job
};

class JobManager {
 public:
  JobManager(JobManagerOptions options, const StateDirectory& directory, JobTable& table,
             const CheckpointReaders& readers, CheckpointManager& checkpoints,
             WorkerManager& workers, DeviceRegistry& devices);

  // The stored reply, or nothing if the job may be planned.
  absl::StatusOr<std::optional<v1::CreateJobResponse>> BeginCreate(
      const v1::CreateJobRequest& request);
  absl::StatusOr<v1::CreateJobResponse> FinishCreate(const v1::CreateJobRequest& request,
                                                     PlannedJob planned);
  absl::StatusOr<std::optional<v1::ExportCheckpointResponse>> ReplayExport(
      const v1::ExportCheckpointRequest& request);
  // `directory` is spec.directory, resolved.
  absl::StatusOr<v1::ExportCheckpointResponse> Export(const v1::ExportCheckpointRequest& request,
                                                      const std::string& directory);
  absl::StatusOr<v1::CancelJobResponse> Cancel(const v1::CancelJobRequest& request);
  absl::StatusOr<v1::ResumeJobResponse> Resume(const v1::ResumeJobRequest& request);
  // The job's files then lie in the trash; emptying it is the caller's.
  absl::StatusOr<v1::DeleteJobResponse> Delete(const v1::DeleteJobRequest& request);

  absl::StatusOr<v1::GetJobResponse> Get(const v1::GetJobRequest& request);
  absl::StatusOr<v1::ListJobsResponse> List(const v1::ListJobsRequest& request);
  // Events after `cursor` of one job, or (empty name) of all. NotFound / JOB_NOT_FOUND,
  // OutOfRange / CURSOR_EXPIRED.
  absl::StatusOr<WatchBatch> ReadEvents(const std::string& name, uint64_t cursor);

  // Fills in counts, memory and status.
  void Describe(v1::GetServerInfoResponse& info);
  v1::ListDevicesResponse ListDevices();
  // InvalidArgument / REQUEST_INVALID for an unknown id.
  absl::StatusOr<v1::ReleaseDeviceResponse> ReleaseDevice(const v1::ReleaseDeviceRequest& request);

 private:
  // Unavailable / SERVER_DRAINING, ResourceExhausted / QUEUE_FULL, and
  // HOST_MEMORY_INSUFFICIENT for a plan that never fits.
  absl::Status Admit() const;
  absl::Status AdmitMemory(const v1::JobPlan& plan) const;
  // No unfinished job will write to the same directory: the later one would lose its work.
  absl::Status CheckOutputFree(const std::string& directory, const std::string& field) const;
  absl::Status CheckNotInUse(const std::string& job);
  // NotFound / CHECKPOINT_NOT_FOUND if spec.start_checkpoint is not there.
  absl::Status CheckStart(const v1::JobSpec& spec);
  // What differs from the job whose checkpoint the spec starts from, as warnings.
  void AddStartWarnings(v1::Job& job);
  // The step to go on from.
  absl::StatusOr<int64_t> ResumableStep(const v1::ResumeJobRequest& request);
  absl::Status InsertReader(const v1::Job& job, const RequestRecord* request);
  // jobs/{id} that has the device, or empty.
  std::string HolderOf(const std::string& device);
  std::string NewJobName();
  v1::Job NewJob(const std::string& name);

  const JobManagerOptions options_;
  const StateDirectory& directory_;
  JobTable& table_;
  const CheckpointReaders& readers_;
  CheckpointManager& checkpoints_;
  WorkerManager& workers_;
  DeviceRegistry& devices_;
};

}  // namespace penstock::server
