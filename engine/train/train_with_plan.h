// Train() with another plan than the planner's: how tests reach policies that a CPU never gets.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/train/model_input.h"
#include "engine/train/training_plan.h"

namespace penstock {

// Called once, when the planner has made the plan.
using PlanChange = std::function<void(const ModelInput& model, TrainingPlan& plan)>;

// As Train(); without a change it is that.
absl::StatusOr<TrainSummary> TrainWithPlan(const TrainConfig& config, const PlanChange& change,
                                           TrainObserver& observer);

}  // namespace penstock
