#include "server/jobs/file_sources.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/train/checkpoint_directory.h"
#include "server/jobs/checkpoint_readers.h"
#include "server/reasons.h"
#include "spdlog/spdlog.h"

namespace penstock::server {
namespace {

constexpr std::chrono::seconds kLinger{60};
constexpr std::string_view kExports = "/exports/";

}  // namespace

absl::StatusOr<FileSource> FileSources::FindExport(const std::string& parent, size_t middle) {
  const std::string job_name = parent.substr(0, middle);
  PENSTOCK_RETURN_IF_ERROR(CheckJobName(job_name, "parent"));
  int64_t wanted = 0;
  (void)absl::SimpleAtoi(parent.substr(middle + kExports.size()), &wanted);
  PENSTOCK_ASSIGN_OR_RETURN(const v1::Job job, table_.Get(job_name));
  int64_t count = 0;
  for (const std::string& artifact : job.artifacts()) {
    // The others are names of checkpoints.
    if (!absl::StartsWith(artifact, "/") || ++count != wanted) continue;
    return FileSource{.directory = artifact, .check_roots = true};
  }
  return Error(absl::StatusCode::kNotFound, reason::kFileNotFound,
               absl::StrCat("there is no ", parent, ": ", job_name, " has exported ", count,
                            count == 1 ? " directory" : " directories", ", counted from 1"),
               {{"parent", parent}, {"exports", absl::StrCat(count)}});
}

absl::StatusOr<FileSource> FileSources::Find(const std::string& parent) {
  if (absl::StartsWith(parent, "uploads/")) {
    PENSTOCK_RETURN_IF_ERROR(CheckUploadName(parent, "parent"));
    FileSource source;
    PENSTOCK_ASSIGN_OR_RETURN(source.directory, uploads_.DirectoryOf(parent));
    PENSTOCK_ASSIGN_OR_RETURN(source.upload, uploads_.Get(parent));
    return source;
  }
  if (const size_t middle = parent.find(kExports); middle != std::string::npos) {
    return FindExport(parent, middle);
  }
  const absl::StatusOr<CheckpointName> name = ParseCheckpointName(parent, "parent");
  if (!name.ok()) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
                 absl::StrCat(std::string(name.status().message()),
                              ", jobs/{id}/exports/{n} or uploads/{id}"),
                 MetadataOf(name.status()));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const v1::Checkpoint checkpoint,
                            table_.store().GetCheckpoint(name->job, name->step));
  return FileSource{.directory = checkpoint.directory()};
}

absl::StatusOr<FileSource> FileSources::Open(const std::string& parent) {
  PENSTOCK_ASSIGN_OR_RETURN(FileSource source, Find(parent));
  const absl::StatusOr<CheckpointName> name = ParseCheckpointName(parent, "parent");
  if (!name.ok()) return source;
  const auto [held, is_new] = held_.try_emplace(parent, Held{.name = *name});
  if (is_new) {
    const absl::Status holding =
        HoldCheckpoint(directory_.Checkpoints(name->job), name->step, kDownloadHolder);
    if (!holding.ok()) {
      held_.erase(held);
      return holding;
    }
  }
  ++held->second.open;
  ++held->second.use;
  return source;
}

void FileSources::Close(const std::string& parent) {
  const auto held = held_.find(parent);
  if (held == held_.end()) return;
  --held->second.open;
  control_.PostAfter(kLinger, [this, parent, use = held->second.use] {
    const auto still = held_.find(parent);
    if (still != held_.end() && still->second.open == 0 && still->second.use == use) {
      Release(parent);
    }
  });
}

void FileSources::Release(const std::string& parent) {
  const CheckpointName name = held_.at(parent).name;
  held_.erase(parent);
  const absl::Status released =
      ReleaseCheckpoint(directory_.Checkpoints(name.job), name.step, kDownloadHolder);
  if (!released.ok()) spdlog::warn("{}: {}", parent, std::string(released.message()));
}

absl::Status FileSources::ReleaseAll(const std::string& job) {
  std::vector<std::string> idle;
  for (const auto& [parent, held] : held_) {
    if (held.name.job != job) continue;
    if (held.open > 0) {
      return Error(absl::StatusCode::kFailedPrecondition, reason::kCheckpointInUse,
                   absl::StrCat(parent, " is being downloaded; try again when that is over"),
                   {{"checkpoint", parent}});
    }
    idle.push_back(parent);
  }
  for (const std::string& parent : idle) Release(parent);
  return absl::OkStatus();
}

void FileSources::ReleaseIdle(const CheckpointName& name) {
  const std::string parent = absl::StrCat(name.job, "/checkpoints/", name.step);
  const auto held = held_.find(parent);
  if (held != held_.end() && held->second.open == 0) Release(parent);
}

}  // namespace penstock::server
