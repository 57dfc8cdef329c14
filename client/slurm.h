// The Slurm job around `penstock run`, if there is one.
//
// A job that leaves with an exit code of its own after a preemption is requeued only where the site
// lists that code in RequeueExit, so `run` asks for it. It asks only while Slurm takes the job as
// running: one that scancel ended, or that is over its time, would be brought back for ever.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/endpoint.h"

namespace penstock::client {

// As scontrol takes it: "123", or "120_4" for an element of an array, whose number alone may mean
// the whole array. Nothing outside a Slurm job.
std::optional<std::string> SlurmJobId(const GetEnvironment& environment);

// What `scontrol -o show job` says in "JobState="; empty if it says nothing.
std::string SlurmStateIn(const std::string& text);

enum class Requeued { kYes, kNotRunning };
// Unavailable, with what scontrol said, if that fails or does not answer within a minute.
absl::StatusOr<Requeued> RequeueSlurmJob(const std::string& id);

}  // namespace penstock::client
