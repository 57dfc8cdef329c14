// One attempt at a job, from its assignment to its outcome.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "penstock/internal/worker.pb.h"

namespace penstock::server {

// Reads what the daemon has written to attempts/{n}/assignment.pb and checks that it is whole.
absl::StatusOr<internal::Assignment> ReadAssignment(const std::string& path);

// Measures the assignment's device and writes the profile.
absl::Status RunCalibration(const internal::Assignment& assignment);

// {job_directory}/attempts/{n}
std::string AttemptDirectory(const internal::Assignment& assignment);

// Trains or exports on this thread. Whatever happens becomes an outcome.
internal::AttemptOutcome RunAttempt(const internal::Assignment& assignment,
                                    TrainObserver& observer);

// The outcome of an attempt that ended with this error.
internal::AttemptOutcome FailedOutcome(const absl::Status& status);

// Writes attempts/{n}/outcome.pb so that it is there whole or not at all, also after a power cut:
// a daemon that was away learns from it how the attempt ended.
absl::Status WriteOutcome(const internal::Assignment& assignment,
                          const internal::AttemptOutcome& outcome);

}  // namespace penstock::server
