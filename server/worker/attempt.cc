#include "server/worker/attempt.h"

#include <fstream>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "google/protobuf/util/json_util.h"
#include "server/spec/convert.h"
#include "server/spec/job_spec.h"
#include "server/status_proto.h"
#include "server/store/log_file.h"
#include "server/store/state_directory.h"

namespace penstock::server {
namespace {

internal::AttemptResult ResultOf(TrainEnd end) {
  switch (end) {
    case TrainEnd::kFinished:
      return internal::ATTEMPT_RESULT_SUCCEEDED;
    case TrainEnd::kStopped:
      return internal::ATTEMPT_RESULT_STOPPED;
    case TrainEnd::kRolledBack:
      return internal::ATTEMPT_RESULT_ROLLED_BACK;
  }
  return internal::ATTEMPT_RESULT_UNSPECIFIED;
}

// What checkpoints and exports of this attempt say of it; `spec` as the daemon has resolved it.
ProvenanceConfig ProvenanceOf(const internal::Assignment& assignment,
                              const google::protobuf::Message& spec) {
  ProvenanceConfig config{.job = assignment.job(),
                          .attempt = assignment.attempt(),
                          .spec = {},
                          .signing_key_path = assignment.signing_key_path()};
  // Of a message of this build: it cannot fail.
  (void)google::protobuf::util::MessageToJsonString(spec, &config.spec);
  return config;
}

internal::AttemptOutcome RunTraining(const internal::Assignment& assignment,
                                     TrainObserver& observer) {
  TrainConfig config = ToTrainConfig(assignment.train());
  config.checkpoint_directory = absl::StrCat(assignment.job_directory(), "/checkpoints");
  config.token_cache_directory = assignment.token_cache_directory();
  config.start_checkpoint = assignment.start_checkpoint_directory();
  config.provenance = ProvenanceOf(assignment, assignment.train());
  // What the daemon has reserved, not what the machine has: other jobs hold the rest.
  if (assignment.host_memory_bytes() > 0) config.host_memory_bytes = assignment.host_memory_bytes();
  if (config.device.backend == ComputeBackend::kCuda) {
    config.device.uuid = assignment.device();
    config.device.memory_bytes = assignment.device_memory_bytes();
  }
  if (!assignment.profile_json().empty()) {
    absl::StatusOr<MeasuredProfile> measured =
        ParseProfileJson(assignment.profile_json(), "the assignment's profile");
    if (!measured.ok()) return FailedOutcome(measured.status());
    config.device.profile = std::move(measured->profile);
  }
  const absl::StatusOr<TrainSummary> summary = Train(config, observer);
  if (!summary.ok()) return FailedOutcome(summary.status());
  internal::AttemptOutcome outcome;
  outcome.set_result(ResultOf(summary->end));
  outcome.set_early_stop(summary->early_stop);
  if (!summary->output_directory.empty()) outcome.add_artifacts(summary->output_directory);
  return outcome;
}

internal::AttemptOutcome RunExporting(const internal::Assignment& assignment,
                                      TrainObserver& observer) {
  const internal::ExportWork& work = assignment.export_();
  const ExportConfig config{.checkpoint_directory = work.checkpoint_directory(),
                            .output_directory = work.spec().directory(),
                            .export_element = ToExportElement(work.spec().export_type()),
                            .note_path = absl::StrCat(assignment.job_directory(), "/export-begun"),
                            .provenance = ProvenanceOf(assignment, work.spec())};
  const absl::Status status = RunExport(config, observer);
  internal::AttemptOutcome outcome;
  if (absl::IsCancelled(status)) {
    outcome.set_result(internal::ATTEMPT_RESULT_STOPPED);
    return outcome;
  }
  if (!status.ok()) return FailedOutcome(status);
  outcome.set_result(internal::ATTEMPT_RESULT_SUCCEEDED);
  outcome.add_artifacts(work.spec().directory());
  return outcome;
}

}  // namespace

absl::Status RunCalibration(const internal::Assignment& assignment) {
  const internal::CalibrationWork& work = assignment.calibration();
  const bool cpu = assignment.device() == "cpu";
  CalibrateConfig config;
  config.device.backend = cpu ? ComputeBackend::kCpu : ComputeBackend::kCuda;
  if (!cpu) config.device.uuid = assignment.device();
  config.storage_directory = work.storage_directory();
  config.identity = work.identity();
  PENSTOCK_ASSIGN_OR_RETURN(const MeasuredProfile measured, Calibrate(config));
  return WriteFileDurably(work.profile_path(), ProfileJson(measured));
}

absl::StatusOr<internal::Assignment> ReadAssignment(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  internal::Assignment assignment;
  if (!file || !assignment.ParseFromIstream(&file)) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kInternal,
                 absl::StrCat(path, ": not a readable assignment; penstockd writes these, and ",
                              "starts penstock-worker itself"),
                 {{"file", path}});
  }
  if (assignment.has_calibration()) return assignment;
  if (assignment.job().empty() || assignment.job_directory().empty() ||
      assignment.daemon_socket().empty() || assignment.attempt() < 1 ||
      assignment.work_case() == internal::Assignment::WORK_NOT_SET) {
    return Error(
        absl::StatusCode::kInvalidArgument, reason::kInternal,
        absl::StrCat(path, ": an assignment without job, attempt, work, directory or ", "socket"),
        {{"file", path}});
  }
  return assignment;
}

std::string AttemptDirectory(const internal::Assignment& assignment) {
  return absl::StrCat(assignment.job_directory(), "/attempts/", assignment.attempt());
}

internal::AttemptOutcome RunAttempt(const internal::Assignment& assignment,
                                    TrainObserver& observer) {
  return assignment.has_train() ? RunTraining(assignment, observer)
                                : RunExporting(assignment, observer);
}

// Messages quote file names and file contents, which need not be UTF-8; strings of a proto must be,
// or nobody could read the outcome.
internal::AttemptOutcome FailedOutcome(const absl::Status& status) {
  ErrorMetadata metadata = MetadataOf(status);
  for (auto& [key, value] : metadata) value = ValidUtf8(value);
  internal::AttemptOutcome outcome;
  outcome.set_result(internal::ATTEMPT_RESULT_FAILED);
  *outcome.mutable_error() = ToStatusProto(
      Error(status.code(), ReasonOf(status), ValidUtf8(std::string(status.message())), metadata));
  return outcome;
}

absl::Status WriteOutcome(const internal::Assignment& assignment,
                          const internal::AttemptOutcome& outcome) {
  return WriteFileDurably(absl::StrCat(AttemptDirectory(assignment), "/outcome.pb"),
                          outcome.SerializeAsString());
}

}  // namespace penstock::server
