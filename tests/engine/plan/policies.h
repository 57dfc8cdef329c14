// Policies of every kind for a model of a few layers: what plan and executor tests run through.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/plan/policy.h"

namespace penstock {

struct NamedPolicy {
  std::string name;
  Policy policy;
};

inline std::vector<BlockPlacement> PlaceAll(int64_t layers, BlockPlacement placement) {
  return std::vector<BlockPlacement>(layers + 2, placement);
}

// Master weights on the device and moments that come for them, into the place of gradients or, in
// one round, of saved tensors.
inline std::vector<NamedPolicy> MasterPoliciesFor(int64_t layers,
                                                  const std::vector<Saving>& savings) {
  std::vector<BlockPlacement> first = PlaceAll(layers, {.weights = true, .gradients = true});
  first[1].master = true;
  std::vector<BlockPlacement> beside_state = PlaceAll(layers, {.gradients = true});
  beside_state[0].state = beside_state[1].master = true;
  std::vector<BlockPlacement> streamed = PlaceAll(layers, {});
  streamed[0].state = streamed[1].master = streamed[2].master = true;
  std::vector<NamedPolicy> policies = {
      {"master_weights", {.placements = first}},
      {"master_weights_beside_state", {.placements = beside_state}},
      {"master_weights_in_rounds",
       {.micro_batches_per_round = 1,
        .micro_batches_in_first_round = 3,
        .first_savings = savings,
        .placements = first}},
      {"master_weights_and_everything_saved", {.placements = streamed}},
      {"master_weights_and_mixed_savings",
       {.savings = savings, .decoder_slots = 1, .placements = streamed}},
      {"master_weights_of_all",
       {.saving = {SaveLevel::kInput, SavePlace::kHost},
        .placements = PlaceAll(layers, {.weights = true, .master = true})}}};
  for (NamedPolicy& policy : policies) {
    policy.policy.update_time = UpdateTime::kNextStepMomentsLater;
  }
  return policies;
}

// Every placement, saving, round and update time, each once alone and some together. All with the
// same gradient type and chunks give the same bits.
inline std::vector<NamedPolicy> PoliciesFor(int64_t layers, GradientType type) {
  const auto mixed = [&] {
    std::vector<BlockPlacement> placements(layers + 2);
    placements[0] = {.weights = true};
    placements[1] = {.state = true};
    placements[layers] = {.weights = true, .gradients = true, .state = true};
    return placements;
  }();
  std::vector<Saving> savings;
  for (int64_t layer = 0; layer < layers; ++layer) {
    savings.push_back({static_cast<SaveLevel>(layer % 3),
                       layer % 2 == 0 ? SavePlace::kHost : SavePlace::kDevice});
  }
  std::vector<NamedPolicy> policies = {
      {"streamed", {}},
      {"input_only", {.saving = {.level = SaveLevel::kInput}, .decoder_slots = 1}},
      {"saved_on_host", {.saving = {SaveLevel::kAll, SavePlace::kHost}}},
      {"inputs_on_host", {.saving = {SaveLevel::kInput, SavePlace::kHost}}},
      {"mixed_savings", {.savings = savings}},
      {"weights_resident", {.placements = PlaceAll(layers, {.weights = true})}},
      {"gradients_resident", {.placements = PlaceAll(layers, {.gradients = true})}},
      {"state_resident", {.placements = PlaceAll(layers, {.state = true})}},
      {"all_resident",
       {.placements = PlaceAll(layers, {.weights = true, .gradients = true, .state = true})}},
      {"rounds_of_one",
       {.micro_batches_per_round = 1,
        .placements = PlaceAll(layers, {.weights = true, .gradients = true})}},
      {"rounds_of_one_and_an_extra",
       {.micro_batches_per_round = 1,
        .micro_batches_in_first_round = 2,
        .placements = PlaceAll(layers, {.weights = true, .gradients = true})}},
      {"rounds_of_two_and_an_extra",
       {.saving = {.level = SaveLevel::kInput},
        .micro_batches_per_round = 2,
        .micro_batches_in_first_round = 3,
        .placements = PlaceAll(layers, {.gradients = true, .state = true})}},
      {"rounds_of_two_streamed_weights",
       {.saving = {.level = SaveLevel::kAttention},
        .micro_batches_per_round = 2,
        .placements = PlaceAll(layers, {.gradients = true})}},
      {"rounds_of_two_sums_on_host", {.micro_batches_per_round = 2}},
      {"rounds_of_one_and_an_extra_sums_on_host",
       {.saving = {SaveLevel::kAttention, SavePlace::kHost},
        .micro_batches_per_round = 1,
        .micro_batches_in_first_round = 2,
        .placements = PlaceAll(layers, {.weights = true})}},
      {"first_round_of_three_that_saves_less",
       {.micro_batches_per_round = 1,
        .micro_batches_in_first_round = 3,
        .first_savings = savings,
        .placements = PlaceAll(layers, {.weights = true, .gradients = true})}},
      {"first_round_of_three_that_saves_more_sums_on_host",
       {.saving = {SaveLevel::kInput, SavePlace::kHost},
        .micro_batches_per_round = 1,
        .micro_batches_in_first_round = 3,
        .first_savings = std::vector<Saving>(layers, {SaveLevel::kAttention})}},
      {"rounds_of_two_some_sums_on_host",
       {.micro_batches_per_round = 2, .decoder_slots = 1, .placements = mixed}},
      {"mixed_placements", {.savings = savings, .placements = mixed}},
  };
  const size_t count = policies.size();
  for (size_t i = 0; i < count; ++i) {
    NamedPolicy deferred = policies[i];
    deferred.name += "_next_step";
    deferred.policy.update_time = UpdateTime::kNextStep;
    policies.push_back(deferred);
    NamedPolicy in_parts = policies[i];
    in_parts.name += "_moments_later";
    in_parts.policy.update_time = UpdateTime::kNextStepMomentsLater;
    policies.push_back(in_parts);
  }
  for (NamedPolicy& policy : MasterPoliciesFor(layers, savings)) {
    policies.push_back(std::move(policy));
  }
  for (NamedPolicy& policy : policies) policy.policy.gradient_type = type;
  return policies;
}

// Those whose updates go with backward. Without clipping they give the same bits as the others.
inline std::vector<NamedPolicy> PoliciesWithBackward(int64_t layers, GradientType type) {
  std::vector<NamedPolicy> policies;
  for (NamedPolicy& policy : PoliciesFor(layers, type)) {
    bool possible = policy.policy.update_time == UpdateTime::kEndOfStep;
    bool sums_stay = policy.policy.micro_batches_per_round == 0;
    for (const BlockPlacement& placement : policy.policy.placements) {
      possible &= !placement.state;
      sums_stay |= placement.gradients;
    }
    if (!possible || !sums_stay) continue;
    policy.name += "_with_backward";
    policy.policy.update_time = UpdateTime::kWithBackward;
    policies.push_back(policy);
  }
  return policies;
}

inline std::vector<NamedPolicy> AllPoliciesFor(int64_t layers, GradientType type) {
  std::vector<NamedPolicy> policies = PoliciesFor(layers, type);
  for (NamedPolicy& policy : PoliciesWithBackward(layers, type)) {
    policies.push_back(std::move(policy));
  }
  return policies;
}

}  // namespace penstock
