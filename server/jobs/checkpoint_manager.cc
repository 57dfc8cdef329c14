#include "server/jobs/checkpoint_manager.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/jobs/checkpoint_readers.h"
#include "server/jobs/page_token.h"
#include "server/jobs/request_replay.h"
#include "server/store/job_state.h"

namespace penstock::server {
namespace {

std::string FullName(const CheckpointName& name) {
  return absl::StrCat(name.job, "/checkpoints/", name.step);
}

bool IsPinned(const CheckpointHolds& holds, int64_t step) {
  const auto found = holds.find(step);
  return found != holds.end() && found->second.contains(kPinHolder);
}

absl::Status InUse(const CheckpointName& name, const std::string& why, const std::string& way_out) {
  return Error(absl::StatusCode::kFailedPrecondition, reason::kCheckpointInUse,
               absl::StrCat(FullName(name), " ", why, "; ", way_out),
               {{"checkpoint", FullName(name)}});
}

// Differs from every value that this daemon, or one before it, has told a worker.
uint64_t NewSaveRequest() {
  return static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
}

}  // namespace

absl::StatusOr<v1::ListCheckpointsResponse> CheckpointManager::List(
    const v1::ListCheckpointsRequest& request) {
  const std::string filter = "checkpoints " + request.parent();
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t size, PageSize(request.page_size()));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t after,
                            ParsePageToken(request.page_token(), filter, /*first=*/-1));
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<v1::Checkpoint> found,
                            table_.store().ListCheckpoints(request.parent(), after, size + 1));
  PENSTOCK_ASSIGN_OR_RETURN(const CheckpointHolds holds,
                            ListCheckpointHolds(directory_.Checkpoints(request.parent())));
  v1::ListCheckpointsResponse response;
  for (v1::Checkpoint& checkpoint : found) {
    if (response.checkpoints_size() == size) {
      response.set_next_page_token(
          MakePageToken(filter, response.checkpoints(static_cast<int>(size) - 1).step()));
      break;
    }
    checkpoint.set_pinned(IsPinned(holds, checkpoint.step()));
    *response.add_checkpoints() = std::move(checkpoint);
  }
  return response;
}

absl::StatusOr<v1::Checkpoint> CheckpointManager::Find(const CheckpointName& name) {
  PENSTOCK_ASSIGN_OR_RETURN(v1::Checkpoint checkpoint,
                            table_.store().GetCheckpoint(name.job, name.step));
  PENSTOCK_ASSIGN_OR_RETURN(const CheckpointHolds holds,
                            ListCheckpointHolds(directory_.Checkpoints(name.job)));
  checkpoint.set_pinned(IsPinned(holds, name.step));
  return checkpoint;
}

absl::StatusOr<v1::GetCheckpointResponse> CheckpointManager::Get(
    const v1::GetCheckpointRequest& request) {
  PENSTOCK_ASSIGN_OR_RETURN(const CheckpointName name, ParseCheckpointName(request.name(), "name"));
  v1::GetCheckpointResponse response;
  PENSTOCK_ASSIGN_OR_RETURN(*response.mutable_checkpoint(), Find(name));
  return response;
}

absl::StatusOr<v1::SaveCheckpointResponse> CheckpointManager::Save(
    const v1::SaveCheckpointRequest& request) {
  PENSTOCK_ASSIGN_OR_RETURN(auto replay,
                            Replay<v1::SaveCheckpointResponse>(table_.store(), request));
  if (replay) return *replay;
  PENSTOCK_ASSIGN_OR_RETURN(const v1::Job job, table_.Get(request.parent()));
  ActiveJob* active = table_.Find(request.parent());
  if (!job.has_train() || job.state() != v1::JOB_STATE_RUNNING || active == nullptr ||
      !active->worker) {
    return Error(absl::StatusCode::kFailedPrecondition, reason::kJobStateConflict,
                 absl::StrCat(request.parent(), job.has_train() ? " is " : " is an export, and ",
                              StateName(job.state()),
                              "; only a training job that is RUNNING has something to save"),
                 {{"job", request.parent()}, {"state", StateName(job.state())}});
  }
  v1::SaveCheckpointResponse response;
  response.set_step(std::max(job.progress().step(), active->worker->last_step));
  PENSTOCK_ASSIGN_OR_RETURN(const uint64_t last_event, table_.store().LastEvent());
  response.mutable_cursor()->set_event(last_event);
  const auto record = MakeRecord(request, response);
  PENSTOCK_RETURN_IF_ERROR(record ? table_.store().InsertRequest(*record)
                                  : table_.store().access().EnterCall());
  active->worker->save_request = NewSaveRequest();
  return response;
}

absl::StatusOr<v1::PinCheckpointResponse> CheckpointManager::Pin(
    const v1::PinCheckpointRequest& request) {
  PENSTOCK_ASSIGN_OR_RETURN(auto replay,
                            Replay<v1::PinCheckpointResponse>(table_.store(), request));
  if (replay) return *replay;
  PENSTOCK_ASSIGN_OR_RETURN(const CheckpointName name, ParseCheckpointName(request.name(), "name"));
  PENSTOCK_RETURN_IF_ERROR(table_.store().GetCheckpoint(name.job, name.step).status());
  const std::string directory = directory_.Checkpoints(name.job);
  PENSTOCK_RETURN_IF_ERROR(table_.store().access().EnterCall());
  PENSTOCK_RETURN_IF_ERROR(request.pinned() ? HoldCheckpoint(directory, name.step, kPinHolder)
                                            : ReleaseCheckpoint(directory, name.step, kPinHolder));
  v1::PinCheckpointResponse response;
  PENSTOCK_ASSIGN_OR_RETURN(*response.mutable_checkpoint(), Find(name));
  if (const auto record = MakeRecord(request, response)) {
    PENSTOCK_RETURN_IF_ERROR(table_.store().InsertRequest(*record));
  }
  return response;
}

absl::Status CheckpointManager::CheckNotHeld(const CheckpointHolds& holds,
                                             const CheckpointName& name) {
  if (IsPinned(holds, name.step)) return InUse(name, "is pinned", "unpin it first");
  const auto held = holds.find(name.step);
  if (held == holds.end()) return absl::OkStatus();
  if (held->second.contains(kDownloadHolder)) {
    return InUse(name, "is being downloaded", "try again when that is over");
  }
  return InUse(name, absl::StrCat("is read by jobs/", *held->second.begin()),
               "wait for the end of that job, or cancel it");
}

absl::Status CheckpointManager::CheckDeletable(const CheckpointName& name) {
  PENSTOCK_ASSIGN_OR_RETURN(const CheckpointHolds holds,
                            ListCheckpointHolds(directory_.Checkpoints(name.job)));
  PENSTOCK_RETURN_IF_ERROR(CheckNotHeld(holds, name));
  if (table_.Find(name.job) == nullptr) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const auto newer,
                            table_.store().ListCheckpoints(name.job, name.step, /*limit=*/1));
  if (!newer.empty()) return absl::OkStatus();
  return InUse(name, "is the newest of a job that has not ended, which would go on from it",
               "wait for a newer one or for the end of the job");
}

// The directory first: a listed checkpoint that is gone is found by Recover(), one that is there
// and not listed would be found by nobody.
absl::StatusOr<v1::DeleteCheckpointResponse> CheckpointManager::Delete(
    const v1::DeleteCheckpointRequest& request) {
  PENSTOCK_ASSIGN_OR_RETURN(auto replay,
                            Replay<v1::DeleteCheckpointResponse>(table_.store(), request));
  if (replay) return *replay;
  PENSTOCK_ASSIGN_OR_RETURN(const CheckpointName name, ParseCheckpointName(request.name(), "name"));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::Checkpoint checkpoint,
                            table_.store().GetCheckpoint(name.job, name.step));
  downloads_.ReleaseIdle(name);
  PENSTOCK_RETURN_IF_ERROR(CheckDeletable(name));
  PENSTOCK_RETURN_IF_ERROR(table_.store().access().EnterCall());
  const std::string directory = directory_.Checkpoints(name.job);
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<std::string> out,
                            TakeOutCheckpoint(directory, name.step, Leaving::kRemoved));
  if (out) PENSTOCK_RETURN_IF_ERROR(directory_.DiscardPath(*out));
  v1::DeleteCheckpointResponse response;
  const auto record = MakeRecord(request, response);
  PENSTOCK_RETURN_IF_ERROR(table_.store().RemoveCheckpoint(
      name.job, checkpoint.attempt(), /*number=*/0, name.step, record ? &*record : nullptr));
  return response;
}

absl::Status CheckpointManager::SupersedeAfter(const CheckpointName& name) {
  const std::string directory = directory_.Checkpoints(name.job);
  PENSTOCK_ASSIGN_OR_RETURN(
      const auto later, table_.store().ListCheckpoints(name.job, name.step, /*limit=*/INT64_MAX));
  for (const v1::Checkpoint& checkpoint : later) {
    downloads_.ReleaseIdle({.job = name.job, .step = checkpoint.step()});
  }
  PENSTOCK_ASSIGN_OR_RETURN(const CheckpointHolds holds, ListCheckpointHolds(directory));
  for (const v1::Checkpoint& checkpoint : later) {
    PENSTOCK_RETURN_IF_ERROR(CheckNotHeld(holds, {.job = name.job, .step = checkpoint.step()}));
  }
  for (const v1::Checkpoint& checkpoint : later) {
    PENSTOCK_RETURN_IF_ERROR(
        TakeOutCheckpoint(directory, checkpoint.step(), Leaving::kSuperseded).status());
    PENSTOCK_RETURN_IF_ERROR(table_.store().RemoveCheckpoint(name.job, checkpoint.attempt(),
                                                             /*number=*/0, checkpoint.step()));
  }
  return absl::OkStatus();
}

absl::Status CheckpointManager::Recover(const std::vector<std::string>& jobs) {
  for (const std::string& job : jobs) {
    PENSTOCK_ASSIGN_OR_RETURN(const auto listed,
                              table_.store().ListCheckpoints(job, -1, INT64_MAX));
    for (const v1::Checkpoint& checkpoint : listed) {
      std::error_code error;
      if (std::filesystem::exists(checkpoint.directory(), error) || error) continue;
      PENSTOCK_RETURN_IF_ERROR(table_.store().RemoveCheckpoint(job, checkpoint.attempt(),
                                                               /*number=*/0, checkpoint.step()));
    }
  }
  return absl::OkStatus();
}

}  // namespace penstock::server
