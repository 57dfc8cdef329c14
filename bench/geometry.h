// Shapes of published models, for benchmarks with random weights.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model_spec.h"

namespace penstock {

std::vector<std::string> GeometryNames();
// NotFound, with the names there are.
absl::StatusOr<ModelSpec> FindGeometry(const std::string& name);

}  // namespace penstock
