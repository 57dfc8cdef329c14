#include "engine/plan/policy_check.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace penstock {
namespace {

absl::Status Contradiction(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kInternal,
               absl::StrCat("policy: ", what));
}

}  // namespace

absl::Status CheckPolicy(const Policy& policy, const ModelSpec& spec, const ProgramShape& shape) {
  if (shape.micro_batches < 1 || shape.tokens_per_micro_batch < 1 || policy.decoder_slots < 1 ||
      policy.head_chunk_rows < 1 || policy.mlp_chunk_rows < 0 ||
      policy.micro_batches_per_round < 0 || policy.micro_batches_in_first_round < 0) {
    return Contradiction("micro-batches, tokens, slots and chunk rows must be positive");
  }
  const auto blocks = static_cast<size_t>(spec.num_blocks());
  if ((!policy.placements.empty() && policy.placements.size() != blocks) ||
      (!policy.savings.empty() && policy.savings.size() != blocks - 2) ||
      (!policy.first_savings.empty() && policy.first_savings.size() != blocks - 2)) {
    return Contradiction(absl::StrCat("it places ", policy.placements.size(), " blocks and saves ",
                                      policy.savings.size(), " layers, wanted none or ", blocks,
                                      " and ", blocks - 2));
  }
  const bool own_first = policy.micro_batches_in_first_round > 0;
  if (own_first ? policy.micro_batches_per_round == 0 : !policy.first_savings.empty()) {
    return Contradiction("a first round unlike the others needs rounds, and a size of its own");
  }
  const auto any_placement = [&](const auto& predicate) {
    return std::any_of(policy.placements.begin(), policy.placements.end(), predicate);
  };
  const bool state_on_device =
      any_placement([](const BlockPlacement& placement) { return placement.state; });
  const bool moments_visit =
      any_placement([](const BlockPlacement& placement) { return placement.MomentsVisit(); });
  if (moments_visit && (policy.update_time != UpdateTime::kNextStepMomentsLater ||
                        (policy.micro_batches_per_round > 0 && !policy.AllGradientsStay()))) {
    return Contradiction(
        "it holds master weights on the device without their moments, which needs moments that are "
        "updated later, and one round or the gradients of all blocks on the device");
  }
  if (state_on_device && policy.moment_type != MomentType::kFloat32) {
    return Contradiction(absl::StrCat("it keeps moments in ", MomentTypeName(policy.moment_type),
                                      ", which the host updates, and places state on the device, "
                                      "which updates float32 ones alone"));
  }
  if (policy.update_time == UpdateTime::kNextStepMomentsLater &&
      policy.moment_type != MomentType::kFloat32) {
    return Contradiction(absl::StrCat("it updates moments later, and keeps them in ",
                                      MomentTypeName(policy.moment_type),
                                      ", which are updated together with their weights"));
  }
  if (policy.update_time != UpdateTime::kWithBackward) return absl::OkStatus();
  if (state_on_device) {
    return Contradiction("it updates with backward, and places state on the device");
  }
  if (HasHostSums(policy, spec.num_layers, shape.micro_batches)) {
    return Contradiction("it updates with backward, and lets sums wait on the host");
  }
  return absl::OkStatus();
}

}  // namespace penstock
