#include "server/jobs/job_manager.h"

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "google/protobuf/util/message_differencer.h"
#include "google/protobuf/util/time_util.h"
#include "server/access/call.h"
#include "server/jobs/page_token.h"
#include "server/jobs/request_checks.h"
#include "server/jobs/request_replay.h"
#include "server/jobs/schedule_snapshot.h"
#include "server/store/job_state.h"
#include "spdlog/spdlog.h"

namespace penstock::server {
using google::protobuf::util::TimeUtil;
namespace {

constexpr int64_t kMaxListBytes = 2 << 20;  // clients take 4 MiB by default
constexpr int64_t kWatchBatchEvents = 64;
constexpr int64_t kWatchBatchBytes = 256 << 10;
// An export streams tensors through bounded buffers.
constexpr int64_t kExportHostBytes = int64_t{64} << 20;
constexpr size_t kMaxUsers = 1000;
// That say how long writing one takes.
constexpr int64_t kRecentCheckpoints = 50;

}  // namespace

JobManager::JobManager(const StateDirectory& directory, JobTable& table,
                       const CheckpointReaders& readers, UploadManager& uploads,
                       const JobAdmission& admission, WorkerManager& workers,
                       DeviceRegistry& devices)
    : directory_(directory),
      table_(table),
      readers_(readers),
      uploads_(uploads),
      admission_(admission),
      workers_(workers),
      devices_(devices) {}

// ---- Creating ----

std::string JobManager::NewId(char prefix) {
  // Two of one daemon never meet.
  constexpr std::string_view kAlphabet = "abcdefghijkmnpqrstuvwxyz23456789";
  std::random_device random;
  std::string id(1, prefix);
  for (int i = 0; i < 12; ++i) id += kAlphabet[random() % kAlphabet.size()];
  return id;
}

v1::Job JobManager::NewJob(const std::string& name) {
  v1::Job job;
  job.set_name(name);
  job.set_owner(CurrentUser());
  job.set_state(v1::JOB_STATE_QUEUED);
  *job.mutable_create_time() = TimeUtil::GetCurrentTime();
  *job.mutable_queue_time() = job.create_time();
  return job;
}

absl::StatusOr<std::optional<v1::CreateJobResponse>> JobManager::BeginCreate(
    const v1::CreateJobRequest& request) {
  if (!request.validate_only()) {
    PENSTOCK_ASSIGN_OR_RETURN(auto replay, Replay<v1::CreateJobResponse>(table_.store(), request));
    if (replay) return replay;
  }
  PENSTOCK_RETURN_IF_ERROR(admission_.CheckRoom(CurrentUser(), 1));
  if (!request.job_id().empty()) {
    PENSTOCK_RETURN_IF_ERROR(CheckNameFree("jobs/" + request.job_id()));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckUnplanned(request.spec()));
  return std::nullopt;
}

namespace {

// The worker would refuse it, too, but only after the job's turn has come.
absl::Status CheckSameMoments(const v1::Job& parent, const v1::JobSpec& spec) {
  const auto name_of = [](const v1::JobSpec& of) {
    const v1::StateType type = of.precision().optimizer_state();
    return v1::StateType_Name(type == v1::STATE_TYPE_UNSPECIFIED ? v1::STATE_TYPE_FLOAT32 : type);
  };
  const std::string found = name_of(spec), wanted = name_of(parent.train());
  if (found == wanted) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition, reason::kCheckpointMismatch,
               absl::StrCat("precision.optimizer_state: found ", found, ", but ",
                            spec.start_checkpoint(), " keeps its moments in ", wanted,
                            "; keep that, or export the checkpoint and train from the export"),
               {{"field", "precision.optimizer_state"}, {"found", found}, {"wanted", wanted}});
}

}  // namespace

absl::Status JobManager::CheckNameFree(const std::string& name) {
  if (!table_.store().GetJob(name).ok()) return absl::OkStatus();
  return Error(absl::StatusCode::kAlreadyExists, reason::kJobExists,
               absl::StrCat(name, " exists; choose another id or leave it empty"),
               {{"job", name}, {"field", "job_id"}});
}

absl::Status JobManager::CheckUnplanned(const v1::JobSpec& spec) {
  PENSTOCK_RETURN_IF_ERROR(CheckStart(spec));
  return admission_.CheckParents(spec.queue());
}

absl::Status JobManager::CheckStart(const v1::JobSpec& spec) {
  PENSTOCK_RETURN_IF_ERROR(uploads_.CheckUsable(spec));
  const std::string& start = spec.start_checkpoint();
  if (start.empty()) return absl::OkStatus();
  if (absl::StartsWith(start, "uploads/")) return CheckUploadName(start, "spec.start_checkpoint");
  if (!absl::StartsWith(start, "jobs/")) {
    return Error(
        absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
        absl::StrCat("spec.start_checkpoint is '", absl::CHexEscape(start.substr(0, 80)),
                     "'; expected jobs/{id}/checkpoints/{step}, or uploads/{id} for one that "
                     "was sent to this daemon; an exported model is trained on from "
                     "model.directory"),
        {{"field", "spec.start_checkpoint"}});
  }
  PENSTOCK_ASSIGN_OR_RETURN(const CheckpointName name,
                            ParseCheckpointName(spec.start_checkpoint(), "spec.start_checkpoint"));
  PENSTOCK_RETURN_IF_ERROR(table_.store().GetCheckpoint(name.job, name.step).status());
  // With epochs the number of steps is known when the data are read.
  if (const int64_t steps = spec.schedule().max_steps(); steps > 0 && name.step >= steps) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kSpecInvalid,
                 absl::StrCat(start, " is of step ", name.step, " and schedule.max_steps is ",
                              steps, ", so nothing is left to train; raise schedule.max_steps"),
                 {{"field", "schedule.max_steps"},
                  {"found", absl::StrCat(steps)},
                  {"expected", absl::StrCat("more than ", name.step)}});
  }
  const absl::StatusOr<StoredJob> parent = table_.store().GetJob(name.job);
  return parent.ok() ? CheckSameMoments(parent->job, spec) : absl::OkStatus();
}

void JobManager::AddStartWarnings(v1::Job& job) {
  const std::optional<CheckpointName> start = CheckpointReadBy(job);
  if (!start) return;
  const absl::StatusOr<StoredJob> parent = table_.store().GetJob(start->job);
  if (!parent.ok()) return;
  v1::JobSpec before = parent->job.train(), now = job.train();
  for (v1::JobSpec* spec : {&before, &now}) {
    // Names, places and times, which decide nothing.
    spec->clear_display_name();
    spec->clear_labels();
    spec->clear_output();
    spec->clear_start_checkpoint();
    spec->clear_queue();
  }
  std::string changes;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&changes);
  differencer.Compare(before, now);
  for (const absl::string_view change : absl::StrSplit(changes, '\n', absl::SkipEmpty())) {
    job.add_warnings(absl::StrCat("unlike ", start->job, ": ", change));
  }
}

absl::StatusOr<v1::PlanJobResponse> JobManager::FinishPlan(const v1::PlanJobRequest& request,
                                                           v1::PlanJobResponse planned) {
  PENSTOCK_RETURN_IF_ERROR(CheckStart(request.spec()));
  if (request.machine().empty()) PENSTOCK_RETURN_IF_ERROR(admission_.CheckMemory(planned.plan()));
  v1::Job job;
  *job.mutable_train() = planned.spec();
  AddStartWarnings(job);
  planned.mutable_warnings()->MergeFrom(job.warnings());
  return planned;
}

absl::StatusOr<v1::CreateJobResponse> JobManager::FinishCreate(const v1::CreateJobRequest& request,
                                                               v1::PlanJobResponse planned) {
  // Once more: other calls, maybe of the same id, came in between.
  PENSTOCK_ASSIGN_OR_RETURN(auto replay, BeginCreate(request));
  if (replay) return *replay;
  std::string name;
  if (!request.validate_only()) {
    name = absl::StrCat("jobs/", request.job_id().empty() ? NewId('j') : request.job_id());
  }
  v1::CreateJobResponse response;
  PENSTOCK_ASSIGN_OR_RETURN(*response.mutable_job(), MakeJob(name, std::move(planned)));
  if (request.validate_only()) return response;
  PENSTOCK_RETURN_IF_ERROR(Insert({response.job()}, MakeRecord(request, response)));
  return response;
}

absl::StatusOr<v1::Job> JobManager::MakeJob(const std::string& name, v1::PlanJobResponse planned) {
  // Its paths are resolved now: a link may have led to an upload.
  PENSTOCK_RETURN_IF_ERROR(uploads_.CheckUsable(planned.spec()));
  PENSTOCK_RETURN_IF_ERROR(admission_.CheckMemory(planned.plan()));
  PENSTOCK_RETURN_IF_ERROR(
      admission_.CheckOutputFree(planned.spec().output().directory(), "output.directory"));
  v1::Job job;
  if (!name.empty()) job = NewJob(name);
  job.mutable_train()->Swap(planned.mutable_spec());
  job.mutable_plan()->Swap(planned.mutable_plan());
  job.mutable_warnings()->Swap(planned.mutable_warnings());
  AddStartWarnings(job);
  return job;
}

absl::Status JobManager::Insert(const std::vector<v1::Job>& jobs,
                                const std::optional<RequestRecord>& record) {
  for (const v1::Job& job : jobs) {
    PENSTOCK_RETURN_IF_ERROR(CheckNameFree(job.name()));
    // Whatever lies there is no job's: its row is gone.
    PENSTOCK_RETURN_IF_ERROR(directory_.Discard(job.name()));
  }
  // What a job reads is held before anybody knows of the job.
  absl::Status status;
  size_t held = 0;
  while (held < jobs.size()) {
    status = readers_.Begin(jobs[held]);
    if (!status.ok()) break;
    ++held;
  }
  if (status.ok()) status = table_.Insert(jobs, record ? &*record : nullptr);
  if (status.ok()) {
    workers_.Dispatch();
  } else {
    for (size_t i = 0; i < held; ++i) readers_.End(jobs[i]);
  }
  return status;
}

absl::StatusOr<std::optional<v1::ExportCheckpointResponse>> JobManager::ReplayExport(
    const v1::ExportCheckpointRequest& request) {
  return Replay<v1::ExportCheckpointResponse>(table_.store(), request);
}

absl::StatusOr<v1::ExportCheckpointResponse> JobManager::Export(
    const v1::ExportCheckpointRequest& request, const std::string& directory) {
  PENSTOCK_ASSIGN_OR_RETURN(auto replay, ReplayExport(request));
  if (replay) return *replay;
  PENSTOCK_RETURN_IF_ERROR(admission_.CheckRoom(CurrentUser(), 1));
  PENSTOCK_ASSIGN_OR_RETURN(const CheckpointName name,
                            ParseCheckpointName(request.spec().checkpoint(), "spec.checkpoint"));
  PENSTOCK_RETURN_IF_ERROR(table_.store().GetCheckpoint(name.job, name.step).status());
  PENSTOCK_RETURN_IF_ERROR(admission_.CheckOutputFree(directory, "spec.directory"));
  v1::ExportCheckpointResponse response;
  v1::Job& job = *response.mutable_job();
  job = NewJob("jobs/" + NewId('j'));
  *job.mutable_export_() = request.spec();
  job.mutable_export_()->set_directory(directory);
  job.mutable_plan()->set_host_peak_bytes(kExportHostBytes);
  PENSTOCK_RETURN_IF_ERROR(admission_.CheckMemory(job.plan()));
  PENSTOCK_RETURN_IF_ERROR(Insert({job}, MakeRecord(request, response)));
  return response;
}

// ---- Reading ----

absl::StatusOr<v1::GetJobResponse> JobManager::Get(const v1::GetJobRequest& request) const {
  v1::GetJobResponse response;
  PENSTOCK_ASSIGN_OR_RETURN(*response.mutable_job(), table_.Get(request.name()));
  return response;
}

absl::Status JobManager::List(const v1::ListJobsRequest& request,
                              v1::ListJobsResponse& response) const {
  std::vector<v1::JobState> states;
  for (const int state : request.states()) states.push_back(static_cast<v1::JobState>(state));
  std::sort(states.begin(), states.end());
  std::string filter = "jobs";
  for (const v1::JobState state : states) absl::StrAppend(&filter, " ", state);
  absl::StrAppend(&filter, " of ", request.owner(), " in ", request.sweep());
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t size, PageSize(request.page_size()));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t before,
                            ParsePageToken(request.page_token(), filter, INT64_MAX));
  PENSTOCK_ASSIGN_OR_RETURN(const JobPage page,
                            table_.store().board().List({.before_row = before,
                                                         .states = states,
                                                         .owner = request.owner(),
                                                         .sweep = request.sweep(),
                                                         .limit = size,
                                                         .max_bytes = kMaxListBytes},
                                                        *response.mutable_jobs()));
  if (page.more) response.set_next_page_token(MakePageToken(filter, page.last_row));
  return absl::OkStatus();
}

absl::StatusOr<WatchBatch> JobManager::ReadEvents(const std::string& name, uint64_t cursor) {
  WatchBatch batch;
  if (!name.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(batch.job, table_.Get(name));
  }
  PENSTOCK_ASSIGN_OR_RETURN(batch.last_event, table_.store().LastEvent());
  if (cursor > batch.last_event) {
    return Error(
        absl::StatusCode::kOutOfRange, reason::kCursorExpired,
        absl::StrCat("the cursor's event ", cursor, " lies after the last one, ", batch.last_event,
                     ": it is of another state directory. Watch from the beginning"),
        {{"event", absl::StrCat(cursor)}, {"last_event", absl::StrCat(batch.last_event)}});
  }
  PENSTOCK_ASSIGN_OR_RETURN(
      batch.events, table_.store().EventsAfter(cursor, name, kWatchBatchEvents, kWatchBatchBytes));
  return batch;
}

void JobManager::Describe(v1::GetServerInfoResponse& info) {
  info.set_status(workers_.admission() == Admission::kOpen ? v1::SERVER_STATUS_SERVING
                                                           : v1::SERVER_STATUS_DRAINING);
  if (workers_.admission() == Admission::kHeld) info.set_drain_message(workers_.hold_message());
  info.set_queued_jobs(table_.CountInState(v1::JOB_STATE_QUEUED));
  info.set_running_jobs(table_.CountWithWorker());
  info.set_host_memory_bytes(workers_.options().host_memory_bytes);
  info.set_host_memory_reserved_bytes(workers_.reserved_bytes());
  DescribeUsers(info);
  info.set_host_memory_limit_source(admission_.options().host_memory_limit_source);
  if (const auto recent = table_.store().RecentCheckpoints(kRecentCheckpoints); recent.ok()) {
    for (const v1::Checkpoint& checkpoint : *recent) {
      info.set_checkpoint_seconds(std::max(info.checkpoint_seconds(), checkpoint.write_seconds()));
    }
  }
}

void JobManager::DescribeUsers(v1::GetServerInfoResponse& info) {
  std::map<std::string, v1::UserShare> shares;
  for (const auto& [user, seconds] : CountDeviceUse(table_, absl::Now())) {
    v1::UserShare& share = shares[user.owner];
    if (user.kind == v1::DEVICE_KIND_CUDA) share.set_recent_gpu_seconds(seconds);
    if (user.kind == v1::DEVICE_KIND_CPU) share.set_recent_cpu_seconds(seconds);
  }
  for (const auto& [row, active] : table_.active()) {
    v1::UserShare& share = shares[active->stored.job.owner()];
    if (HasWorker(active->state())) share.set_running_jobs(share.running_jobs() + 1);
    if (active->state() == v1::JOB_STATE_QUEUED) share.set_queued_jobs(share.queued_jobs() + 1);
  }
  std::vector<v1::UserShare> users;
  for (auto& [name, share] : shares) {
    share.set_user(name);
    users.push_back(std::move(share));
  }
  const auto used = [](const v1::UserShare& share) {
    return share.recent_gpu_seconds() + share.recent_cpu_seconds();
  };
  std::stable_sort(users.begin(), users.end(), [&](const v1::UserShare& a, const v1::UserShare& b) {
    return used(a) > used(b);
  });
  if (users.size() > kMaxUsers) users.resize(kMaxUsers);
  for (v1::UserShare& share : users) *info.add_users() = std::move(share);
}

v1::ListDevicesResponse JobManager::ListDevices() {
  v1::ListDevicesResponse response;
  for (v1::Device& device : devices_.List()) {
    device.set_job(HolderOf(device.id()));
    *response.add_devices() = std::move(device);
  }
  return response;
}

absl::StatusOr<v1::ReleaseDeviceResponse> JobManager::ReleaseDevice(
    const v1::ReleaseDeviceRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(table_.store().access().EnterCall());
  v1::ReleaseDeviceResponse response;
  PENSTOCK_ASSIGN_OR_RETURN(*response.mutable_device(), devices_.Release(request.id()));
  response.mutable_device()->set_job(HolderOf(request.id()));
  workers_.Dispatch();
  return response;
}

std::string JobManager::HolderOf(const std::string& device) {
  for (const auto& [row, job] : table_.active()) {
    if (job->worker && job->worker->device == device) return job->name();
  }
  return "";
}

}  // namespace penstock::server
