// A JobSpec from a client, checked: every default filled in, every field within its range, every
// path absolute and inside an allowed root, nothing accepted that would not be used.
//
// Errors carry the metadata "field" (the path of the field, batch.tokens_per_step), "found" and
// "expected". What the model and data files hold is checked by PlanTraining() afterwards.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "penstock/v1/device.pb.h"
#include "penstock/v1/job_spec.pb.h"

namespace penstock::server {

// What the daemon has to run jobs on.
struct DeviceOffer {
  std::vector<v1::Device> devices;
  std::string missing_gpus;  // why there is no GPU among them
};

struct ResolvedSpec {
  // No field left to a default: what GetJob shows is what runs.
  v1::JobSpec spec;
  // The same for the engine. checkpoint_directory and token_cache_directory are left empty.
  TrainConfig config;
  // For people: legal, but probably not meant (a learning rate of 0, a setting without effect).
  std::vector<std::string> warnings;
};

absl::StatusOr<ResolvedSpec> ResolveJobSpec(const v1::JobSpec& spec,
                                            const std::vector<std::string>& allowed_roots,
                                            const DeviceOffer& offer);

// The config of a spec that ResolveJobSpec() has resolved; what a worker makes of its assignment.
TrainConfig ToTrainConfig(const v1::JobSpec& resolved);

}  // namespace penstock::server
