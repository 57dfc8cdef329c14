// What clients ask for: the operations behind JobService and AdminService, and exports. Those that
// move a job that is there are in job_moves.h.
//
// Each mutating operation takes the reply it would give to a repeated request_id from the store
// first, and stores its own reply in the transaction of its effect. Creating a training job has
// two halves, for between them the spec is checked on another thread (reading config.json and
// headers may be slow): Begin, then the planner, then Finish, which checks again.
// Belongs to the control thread, but for what only reads jobs.
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
#include "server/jobs/checkpoint_readers.h"
#include "server/jobs/job_admission.h"
#include "server/jobs/job_table.h"
#include "server/jobs/upload_manager.h"
#include "server/jobs/worker_manager.h"

namespace penstock::server {

// A plan to run, or one for people who think about it, with other settings that would be faster.
enum class PlanUse : uint8_t { kRun, kAdvise };
// Makes a spec that can run, defaults filled in, memory laid out. Refuses what could not run.
// Called on threads of its own, by several at once.
using SpecPlanner = std::function<absl::StatusOr<v1::PlanJobResponse>(
    const v1::PlanJobRequest& request, PlanUse use)>;
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

// What watch streams read of the store at a time. Streams that are at the same place share one.
struct WatchBatch {
  std::vector<StoredEvent> events;
  uint64_t last_event = 0;     // of the whole store
  std::optional<v1::Job> job;  // as it is now; for streams of one job
};

class JobManager {
 public:
  JobManager(const StateDirectory& directory, JobTable& table, const CheckpointReaders& readers,
             UploadManager& uploads, const JobAdmission& admission, WorkerManager& workers,
             DeviceRegistry& devices);

  // The stored reply, or nothing if the job may be planned.
  absl::StatusOr<std::optional<v1::CreateJobResponse>> BeginCreate(
      const v1::CreateJobRequest& request);
  absl::StatusOr<v1::CreateJobResponse> FinishCreate(const v1::CreateJobRequest& request,
                                                     v1::PlanJobResponse planned);
  // The parts of these that creating a sweep shares (sweep_manager.h). What can be checked of a
  // spec before it is planned, and has to be checked again before it is stored:
  absl::Status CheckUnplanned(const v1::JobSpec& spec);
  // AlreadyExists / JOB_EXISTS.
  absl::Status CheckNameFree(const std::string& name);
  // The job of a planned spec, if it can run here. Without a name: of a call that only validates.
  absl::StatusOr<v1::Job> MakeJob(const std::string& name, v1::PlanJobResponse planned);
  // All of the jobs, with the reply to keep, or none; then starts what can start.
  absl::Status Insert(const std::vector<v1::Job>& jobs, const std::optional<RequestRecord>& record);
  // "x" and 60 random bits, for a prefix "x".
  static std::string NewId(char prefix);

  // What the planner cannot know of a plan: the daemon's own limit, and the checkpoint that the job
  // would start from.
  absl::StatusOr<v1::PlanJobResponse> FinishPlan(const v1::PlanJobRequest& request,
                                                 v1::PlanJobResponse planned);
  absl::StatusOr<std::optional<v1::ExportCheckpointResponse>> ReplayExport(
      const v1::ExportCheckpointRequest& request);
  // `directory` is spec.directory, resolved.
  absl::StatusOr<v1::ExportCheckpointResponse> Export(const v1::ExportCheckpointRequest& request,
                                                      const std::string& directory);

  // Any thread: they read the board.
  absl::StatusOr<v1::GetJobResponse> Get(const v1::GetJobRequest& request) const;
  absl::Status List(const v1::ListJobsRequest& request, v1::ListJobsResponse& response) const;
  // Events after `cursor` of one job, or (empty name) of all. NotFound / JOB_NOT_FOUND,
  // OutOfRange / CURSOR_EXPIRED.
  absl::StatusOr<WatchBatch> ReadEvents(const std::string& name, uint64_t cursor);

  // Fills in counts, memory and status.
  void Describe(v1::GetServerInfoResponse& info);
  v1::ListDevicesResponse ListDevices();
  // InvalidArgument / REQUEST_INVALID for an unknown id.
  absl::StatusOr<v1::ReleaseDeviceResponse> ReleaseDevice(const v1::ReleaseDeviceRequest& request);

 private:
  void DescribeUsers(v1::GetServerInfoResponse& info);
  // NotFound / CHECKPOINT_NOT_FOUND if spec.start_checkpoint is not there, and UploadManager's
  // errors for uploads that the spec names.
  absl::Status CheckStart(const v1::JobSpec& spec);
  // What differs from the job whose checkpoint the spec starts from, as warnings.
  void AddStartWarnings(v1::Job& job);
  // jobs/{id} that has the device, or empty.
  std::string HolderOf(const std::string& device);
  v1::Job NewJob(const std::string& name);

  const StateDirectory& directory_;
  JobTable& table_;
  const CheckpointReaders& readers_;
  UploadManager& uploads_;
  const JobAdmission& admission_;
  WorkerManager& workers_;
  DeviceRegistry& devices_;
};

}  // namespace penstock::server
