// The directory of a job's checkpoints as worker and daemon share it: what is there, what must
// stay, how one goes away.
//
//   {step}                  complete
//   .held-{step}-{holder}   an empty file: {step} must stay. The holder is "pin", or who reads it
//   .leaving-{step}         complete, about to be removed
//   .removed-{step}         being removed
//   .superseded-{step}      of before the job went back to an older one
//
// Holding and removing need no lock. Who holds writes the note first and looks for the checkpoint
// second; who removes renames the checkpoint first and looks for notes second: whichever comes
// later sees the other, and steps back.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace penstock {

inline constexpr char kPinHolder[] = "pin";

std::string CheckpointPath(const std::string& directory, int64_t step);

// Steps of complete checkpoints; none if there is no such directory. Unavailable / IO_ERROR if it
// cannot be listed.
absl::StatusOr<std::set<int64_t>> ListCheckpointSteps(const std::string& directory);

// Holders by step, whether or not the checkpoint is there. Errors as above.
using CheckpointHolds = std::map<int64_t, std::set<std::string>>;
absl::StatusOr<CheckpointHolds> ListCheckpointHolds(const std::string& directory);

// The note is on the device when this returns. NotFound / CHECKPOINT_NOT_FOUND if the checkpoint
// is gone, or going. REQUIRES: `holder` is a plain file name.
absl::Status HoldCheckpoint(const std::string& directory, int64_t step, const std::string& holder);
// Fine if it was not held.
absl::Status ReleaseCheckpoint(const std::string& directory, int64_t step,
                               const std::string& holder);

// Where a checkpoint goes that counts as one no more: kRemoved, to be deleted by the caller, or by
// TidyCheckpointDirectory(); kSuperseded, to be deleted by DeleteSuperseded().
enum class Leaving : uint8_t { kRemoved, kSuperseded };
// Renames it and gives the new path; nothing if it is held, or was not there.
absl::StatusOr<std::optional<std::string>> TakeOutCheckpoint(const std::string& directory,
                                                             int64_t step, Leaving leaving);
// Best effort.
void DeleteSuperseded(const std::string& directory);

// Puts back what a process was about to take out when it was killed, and deletes what one was
// deleting. Best effort: what stays is found by the next call. REQUIRES: nobody else takes
// checkpoints out meanwhile.
void TidyCheckpointDirectory(const std::string& directory);

}  // namespace penstock
