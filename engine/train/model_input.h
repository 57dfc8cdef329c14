// The model a job starts from, opened but with no weight read.
#pragma once

#include <memory>
#include <variant>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/train/model_directory.h"

namespace penstock {

struct ModelInput {
  ModelSpec spec;
  ModelLayout layout;
  ExportSource source;                        // what checkpoints and exports need
  std::unique_ptr<ModelDirectory> directory;  // null: random initialisation
};

WeightType ToWeightType(ExportElement element);

absl::StatusOr<ModelInput> OpenModelInput(const TrainConfig& config);

}  // namespace penstock
