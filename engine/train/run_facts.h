// What decides the bits of a run, as text: kept in each checkpoint, compared before one is used.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/data/dataset.h"
#include "engine/engine.h"
#include "engine/train/checkpoint.h"
#include "engine/train/model_input.h"
#include "engine/train/training_plan.h"

namespace penstock {

// The fact that says what is trained on: counts and a hash.
inline constexpr char kTrainingDataFact[] = "training data";

// The data counts by its content after tokenizing, splitting and masking, so files may move and
// caches be built again. Reads all of it.
RunFacts MakeRunFacts(const TrainConfig& config, const ModelInput& model, const TrainingPlan& plan,
                      const Dataset& train);

// What the run that wrote them must keep to round as before; nothing if it does not say.
std::optional<RoundingChoice> SavedRounding(const RunFacts& saved);

// FailedPrecondition / CHECKPOINT_MISMATCH naming the first fact in which the checkpoint at `path`
// is of another run, with both values.
absl::Status CheckSameRun(const RunFacts& saved, const RunFacts& current, const std::string& path);

// "optimizer.learning_rate: 0.003, now 0.001" of each fact of identity, or of rounding.
std::vector<std::string> IdentityChanges(const RunFacts& saved, const RunFacts& current);
std::vector<std::string> RoundingChanges(const RunFacts& saved, const RunFacts& current);

}  // namespace penstock
