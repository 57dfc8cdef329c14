#include "server/jobs/checkpoint_readers.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/train/checkpoint_directory.h"
#include "spdlog/spdlog.h"

namespace penstock::server {
namespace {

// "jobs/x" is no file name; "x" is, and neither can be "pin" (CheckJobId).
std::string HolderName(const std::string& job) { return job.substr(job.rfind('/') + 1); }

}  // namespace

std::optional<CheckpointName> CheckpointReadBy(const v1::Job& job) {
  const std::string& read =
      job.has_export_() ? job.export_().checkpoint() : job.train().start_checkpoint();
  if (read.empty()) return std::nullopt;
  const absl::StatusOr<CheckpointName> name = ParseCheckpointName(read, "checkpoint");
  return name.ok() ? std::optional(*name) : std::nullopt;
}

absl::Status CheckpointReaders::Begin(const v1::Job& job) const {
  const std::optional<CheckpointName> read = CheckpointReadBy(job);
  if (!read) return absl::OkStatus();
  return HoldCheckpoint(directory_.Checkpoints(read->job), read->step, HolderName(job.name()));
}

void CheckpointReaders::End(const v1::Job& job) const {
  const std::optional<CheckpointName> read = CheckpointReadBy(job);
  if (!read) return;
  const absl::Status released =
      ReleaseCheckpoint(directory_.Checkpoints(read->job), read->step, HolderName(job.name()));
  if (!released.ok()) spdlog::warn("{}: {}", job.name(), std::string(released.message()));
}

void CheckpointReaders::Recover(const std::vector<std::string>& jobs, JobTable& table) const {
  for (const std::string& job : jobs) {
    const std::string directory = directory_.Checkpoints(job);
    const absl::StatusOr<CheckpointHolds> holds = ListCheckpointHolds(directory);
    if (!holds.ok()) continue;
    for (const auto& [step, holders] : *holds) {
      for (const std::string& holder : holders) {
        if (holder == kPinHolder || table.Find(absl::StrCat("jobs/", holder)) != nullptr) continue;
        (void)ReleaseCheckpoint(directory, step, holder);
      }
    }
  }
}

}  // namespace penstock::server
