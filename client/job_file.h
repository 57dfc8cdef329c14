// A job file as the message that CreateJob takes.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/job_spec.pb.h"

namespace penstock::client {

// Reads `file` ("-": standard input; "": nothing), applies the settings ("key.path=value") in order
// and makes paths absolute: those of a file against the file's directory, those of settings, and
// of standard input, against the working directory. The daemon takes absolute paths only.
absl::StatusOr<v1::JobSpec> LoadJobFile(const std::string& file,
                                        const std::vector<std::string>& settings);

// A sweep: the job of a job file over axes ("optimizer.learning_rate=1e-5,3e-5"), or, without axes,
// what a sweep file says (message SweepSpec). Commas inside brackets, braces and quotes separate no
// values. Settings are for the job.
absl::StatusOr<v1::SweepSpec> LoadSweepFile(const std::string& file,
                                            const std::vector<std::string>& axes,
                                            const std::vector<std::string>& settings);

// The same, starting from a spec that the daemon gave.
absl::StatusOr<v1::JobSpec> ChangeJobSpec(v1::JobSpec spec,
                                          const std::vector<std::string>& settings);

// `path` against the working directory.
std::string AbsolutePath(const std::string& path);

}  // namespace penstock::client
