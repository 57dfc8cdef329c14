// RoPE settings out of config.json, in either of the forms that transformers has written:
//   4.x  rope_theta and rope_scaling {type | rope_type, factor, ...} at the top level
//   5.x  rope_parameters {rope_type, rope_theta, factor, ...}
// A file may hold both if they agree. There is no default theta: readers that had one trained
// models with 10000 and said nothing.
#pragma once

#include "absl/status/statusor.h"
#include "engine/model/config_fields.h"
#include "engine/model/model_spec.h"

namespace penstock {

absl::StatusOr<RopeSpec> ParseRopeConfig(const ConfigFields& config);

}  // namespace penstock
