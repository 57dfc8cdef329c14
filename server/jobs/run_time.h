// How long jobs run, as far as anybody knows: by their time limits, by what their plans predict and
// by what they have measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "penstock/v1/job.pb.h"

namespace penstock::server {

// The longest that a job in the queue will have its device, in seconds; nothing if nobody knows. By
// limits.run_seconds, or the prediction of its steps and half of that again for what comes on top:
// import, evaluations, checkpoints, export, steps slower than planned.
std::optional<int64_t> LongestRunSeconds(const v1::Job& job);

// After how many seconds a job that runs now will have ended; nothing if nobody knows, or if it has
// taken longer than was predicted.
std::optional<int64_t> SecondsLeft(const v1::Job& job, absl::Time now);

absl::Time ToTime(const google::protobuf::Timestamp& time);

// "about 3 h 20 min", "about 40 s"
std::string DurationText(int64_t seconds);

}  // namespace penstock::server
