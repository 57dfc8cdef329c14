// Whether there can be a program of a policy: that it does not contradict itself, the model or the
// step's shape.
#pragma once

#include "absl/status/status.h"
#include "engine/model/model_spec.h"
#include "engine/plan/policy.h"
#include "engine/plan/train_program.h"

namespace penstock {

// InvalidArgument with what it asks for and what that needs.
absl::Status CheckPolicy(const Policy& policy, const ModelSpec& spec, const ProgramShape& shape);

}  // namespace penstock
