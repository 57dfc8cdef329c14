#include "engine/train/job_checkpoints.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/train/file_writer.h"
#include "engine/train/rooted_file.h"
#include "engine/train/run_facts.h"
#include "engine/train/staged_directory.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr char kExportBegun[] = ".export-begun";
constexpr char kRemoved[] = ".removed-";
constexpr char kUnusable[] = ".unusable-";

absl::StatusOr<std::set<int64_t>> StepsIn(const std::string& directory) {
  std::set<int64_t> steps;
  std::error_code error;
  fs::directory_iterator it(directory, error);
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory) {
    return steps;
  }
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    int64_t step = 0;
    if (absl::SimpleAtoi(name, &step) && step > 0 && absl::StrCat(step) == name) {
      steps.insert(step);
    }
  }
  if (error) {
    return Error(absl::StatusCode::kUnavailable, reason::kIoError,
                 absl::StrCat("cannot list the checkpoints in ", directory, ": ", error.message()),
                 {{"file", directory}});
  }
  return steps;
}

void RemoveLeftovers(const std::string& directory) {
  StagedDirectory::RemoveAbandoned(directory);
  std::vector<fs::path> left;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (absl::StartsWith(it->path().filename().string(), kRemoved)) left.push_back(it->path());
  }
  for (const fs::path& path : left) fs::remove_all(path, error);
}

bool IsDamaged(const absl::Status& status) {
  return ReasonOf(status) == reason::kCheckpointCorrupt;
}

// The medium failed under a file. Not that this process lacks something to read it with.
bool IsUnreadable(const absl::Status& status) {
  return ReasonOf(status) == reason::kIoError && !absl::IsResourceExhausted(status);
}

}  // namespace

absl::StatusOr<JobCheckpoints> JobCheckpoints::Open(std::string directory, int64_t keep_last,
                                                    Events events) {
  RemoveLeftovers(directory);
  PENSTOCK_ASSIGN_OR_RETURN(std::set<int64_t> steps, StepsIn(directory));
  return JobCheckpoints(std::move(directory), keep_last, std::move(events), std::move(steps));
}

JobCheckpoints::JobCheckpoints(std::string directory, int64_t keep_last, Events events,
                               std::set<int64_t> steps)
    : directory_(std::move(directory)),
      keep_last_(keep_last),
      events_(std::move(events)),
      steps_(std::move(steps)) {}

std::string JobCheckpoints::PathOf(int64_t step) const {
  return absl::StrCat(directory_, "/", step);
}

absl::StatusOr<std::optional<CheckpointInfo>> JobCheckpoints::LoadNewest(
    const RunFacts& facts, HostStore& store, ThreadPool& pool, ProgressFunction progress) {
  std::optional<CheckpointInfo> loaded;
  std::vector<std::pair<int64_t, absl::Status>> refused;
  absl::Status unreadable;
  for (auto step = steps_.rbegin(); step != steps_.rend() && !loaded; ++step) {
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

absl::StatusOr<int64_t> JobCheckpoints::Save(const HostStore& store, const ExportSource& source,
                                             const CheckpointInfo& info, ThreadPool& pool,
                                             ProgressFunction progress) {
  PENSTOCK_RETURN_IF_ERROR(MakeDirectories(directory_));
  PENSTOCK_ASSIGN_OR_RETURN(
      const int64_t bytes, WriteCheckpoint(store, source, info, PathOf(info.step), pool, progress));
  steps_.insert(info.step);
  return bytes;
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

// Renamed first: a directory named by a step is complete at every moment.
void JobCheckpoints::Prune() {
  while (static_cast<int64_t>(steps_.size()) > keep_last_) {
    const int64_t step = *steps_.begin();
    steps_.erase(steps_.begin());
    const std::string aside = absl::StrCat(directory_, "/", kRemoved, step);
    std::error_code error;
    fs::rename(PathOf(step), aside, error);
    if (!error) fs::remove_all(aside, error);
    if (error) {
      events_.log(absl::StrCat("cannot remove checkpoint ", PathOf(step), ": ", error.message()));
      continue;
    }
    events_.removed(step);
  }
}

}  // namespace penstock
