#include "engine/train/job_checkpoints.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/train/checkpoint_directory.h"
#include "engine/train/file_writer.h"
#include "engine/train/rooted_file.h"
#include "engine/train/run_facts.h"
#include "engine/train/staged_directory.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr char kExportBegun[] = ".export-begun";
constexpr char kUnusable[] = ".unusable-";

bool IsDamaged(const absl::Status& status) {
  return ReasonOf(status) == reason::kCheckpointCorrupt;
}

// The medium failed under a file. Not that this process lacks something to read it with.
bool IsUnreadable(const absl::Status& status) {
  return ReasonOf(status) == reason::kIoError && !absl::IsResourceExhausted(status);
}

}  // namespace

absl::StatusOr<JobCheckpoints> JobCheckpoints::Open(std::string directory, RetentionRule rule,
                                                    Events events) {
  StagedDirectory::RemoveAbandoned(directory);
  TidyCheckpointDirectory(directory);
  PENSTOCK_ASSIGN_OR_RETURN(std::set<int64_t> steps, ListCheckpointSteps(directory));
  return JobCheckpoints(std::move(directory), rule, std::move(events), std::move(steps));
}

JobCheckpoints::JobCheckpoints(std::string directory, RetentionRule rule, Events events,
                               std::set<int64_t> steps)
    : directory_(std::move(directory)),
      rule_(rule),
      events_(std::move(events)),
      steps_(std::move(steps)) {}

std::string JobCheckpoints::PathOf(int64_t step) const { return CheckpointPath(directory_, step); }

absl::StatusOr<std::optional<CheckpointInfo>> JobCheckpoints::LoadNewest(
    const RunFacts& facts, HostStore& store, ThreadPool& pool, ProgressFunction progress) {
  std::optional<CheckpointInfo> loaded;
  std::vector<std::pair<int64_t, absl::Status>> refused;
  absl::Status unreadable;
  for (auto step = steps_.rbegin(); step != steps_.rend() && !loaded; ++step) {
    std::error_code error;
    if (!fs::exists(PathOf(*step), error) && !error) continue;  // somebody has deleted it
    absl::StatusOr<CheckpointInfo> info = Load(*step, facts, store, pool, progress);
    if (info.ok()) {
      loaded = *std::move(info);
    } else if (!IsDamaged(info.status()) && !IsUnreadable(info.status())) {
      return info.status();  // another checkpoint would meet the same
    } else {
      if (IsUnreadable(info.status())) unreadable.Update(info.status());
      refused.emplace_back(*step, info.status());
    }
  }
  if (!loaded && !unreadable.ok()) return unreadable;
  // Only now: what would be lost by it is known.
  for (const auto& [step, why] : refused) SetAside(step, why);
  return loaded;
}

std::optional<RunFacts> JobCheckpoints::NewestFacts() const {
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    const auto opened = OpenCheckpoint(PathOf(*step), Verification::kSizes);
    if (opened.ok()) return (*opened)->info().facts;
  }
  return std::nullopt;
}

absl::StatusOr<CheckpointInfo> JobCheckpoints::Load(int64_t step, const RunFacts& facts,
                                                    HostStore& store, ThreadPool& pool,
                                                    ProgressFunction progress) const {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> opened,
                            OpenCheckpoint(PathOf(step), Verification::kSizes));
  const CheckpointInfo& info = opened->info();
  if (!opened->has_moments()) {
    return Error(absl::StatusCode::kFailedPrecondition, reason::kCheckpointCorrupt,
                 absl::StrCat(PathOf(step),
                              " holds weights alone: it can be exported, but no run "
                              "can go on from it"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckSameRun(info.facts, facts, PathOf(step)));
  if (info.step != step) {
    return Error(absl::StatusCode::kDataLoss, reason::kCheckpointCorrupt,
                 absl::StrCat(PathOf(step), " is of step ", info.step, "; use another checkpoint"));
  }
  PENSTOCK_RETURN_IF_ERROR(LoadCheckpoint(*opened, store, pool, progress));
  if (const auto changes = RoundingChanges(info.facts, facts); !changes.empty()) {
    events_.log(absl::StrCat("the run goes on with other rounding than before step ", step, ": ",
                             absl::StrJoin(changes, "; ")));
  }
  return info;
}

void JobCheckpoints::SetAside(int64_t step, const absl::Status& why) {
  steps_.erase(step);
  const std::string aside = absl::StrCat(directory_, "/", kUnusable, step);
  std::error_code error;
  fs::remove_all(aside, error);
  fs::rename(PathOf(step), aside, error);
  events_.log(absl::StrCat("checkpoint of step ", step, " cannot be used: ",
                           std::string(why.message()), error ? "" : absl::StrCat("; now ", aside)));
  events_.removed(step);
}

absl::StatusOr<WrittenCheckpoint> JobCheckpoints::Write(
    const HostStore& store, const ExportSource& source, const CheckpointInfo& info,
    ThreadPool& pool, ProgressFunction progress, const CheckpointWriteOptions& options) const {
  PENSTOCK_RETURN_IF_ERROR(MakeDirectories(directory_));
  return WriteCheckpoint(store, source, info, PathOf(info.step), pool, progress, options);
}

void JobCheckpoints::NoteExportBegun() const {
  const absl::StatusOr<RootedDirectory> directory = RootedDirectory::Open(directory_);
  if (!directory.ok() || ExportBegun()) return;
  if (!WriteWholeFile(directory->fd(), directory_, kExportBegun, "").ok()) return;
  (void)fsync(directory->fd());
}

bool JobCheckpoints::ExportBegun() const {
  std::error_code error;
  return fs::exists(absl::StrCat(directory_, "/", kExportBegun), error);
}

std::set<int64_t> JobCheckpoints::BestToKeep(int64_t best) const {
  const auto info_of = [this](int64_t step) -> std::optional<CheckpointInfo> {
    const auto opened = OpenCheckpoint(PathOf(step), Verification::kSizes);
    return opened.ok() ? std::optional((*opened)->info()) : std::nullopt;
  };
  std::set<int64_t> keep;
  if (steps_.contains(best)) {
    keep.insert(best);
  } else {  // It could not be written: the best of those that were.
    std::optional<BestEvaluation> lowest;
    for (const int64_t step : steps_) {
      const std::optional<CheckpointInfo> info = info_of(step);
      if (!info || !info->evaluation_loss) continue;
      if (!lowest || *info->evaluation_loss < lowest->loss) {
        lowest = {.step = step, .loss = *info->evaluation_loss};
      }
    }
    if (lowest) keep.insert(lowest->step);
  }
  // A run that rolls back has the best of that time again.
  if (rule_.keep_newest_multiple_of > 0) {
    const auto target = NewestMultiple(steps_, rule_.keep_newest_multiple_of);
    const auto info = target ? info_of(*target) : std::nullopt;
    if (info && info->best) keep.insert(info->best->step);
  }
  return keep;
}

void JobCheckpoints::Prune(std::optional<int64_t> best) {
  DeleteSuperseded(directory_);
  const absl::StatusOr<CheckpointHolds> holds = ListCheckpointHolds(directory_);
  if (!holds.ok()) {
    events_.log(absl::StrCat("no checkpoint is removed: ", std::string(holds.status().message())));
    return;
  }
  RetentionState state{.steps = steps_, .held = {}};
  if (best) state.best = BestToKeep(*best);
  for (const auto& [step, holders] : *holds) state.held.insert(step);
  for (const int64_t step : ChooseRemovals(rule_, state)) Remove(step);
}

absl::StatusOr<std::optional<int64_t>> JobCheckpoints::StepToGoBackTo(int64_t every) const {
  std::optional<int64_t> step = NewestMultiple(steps_, every);
  PENSTOCK_ASSIGN_OR_RETURN(const CheckpointHolds holds, ListCheckpointHolds(directory_));
  for (const auto& [held, holders] : holds) {
    if (steps_.contains(held) && held > step.value_or(0)) step = held;
  }
  return step;
}

absl::Status JobCheckpoints::Supersede(int64_t step) {
  // The newest first: if this ends in the middle, the newest that counts is one of the run still.
  while (!steps_.empty() && *steps_.rbegin() > step) {
    const int64_t newest = *steps_.rbegin();
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<std::string> out,
                              TakeOutCheckpoint(directory_, newest, Leaving::kSuperseded));
    if (!out.has_value() && fs::exists(PathOf(newest))) {
      return Error(absl::StatusCode::kFailedPrecondition, reason::kCheckpointInUse,
                   absl::StrCat(PathOf(newest), " is held by someone"));
    }
    steps_.erase(newest);
  }
  return absl::OkStatus();
}

// What cannot be removed, or is held in this moment, is looked at again by the next Prune.
void JobCheckpoints::Remove(int64_t step) {
  const absl::StatusOr<std::optional<std::string>> out =
      TakeOutCheckpoint(directory_, step, Leaving::kRemoved);
  if (!out.ok()) {
    events_.log(absl::StrCat("cannot remove checkpoint ", PathOf(step), ": ",
                             std::string(out.status().message())));
    return;
  }
  std::error_code error;
  if (!out->has_value() && fs::exists(PathOf(step), error)) return;
  steps_.erase(step);
  if (!out->has_value()) return;  // somebody else has
  events_.removed(step);
  fs::remove_all(**out, error);
  if (error) events_.log(absl::StrCat("cannot delete ", **out, ": ", error.message()));
}

}  // namespace penstock
