#include "engine/plan/simulate.h"

#include "engine/plan/op_cost.h"
#include "engine/plan/train_program.h"
#include "gtest/gtest.h"
#include "tests/engine/plan/plan_testing.h"
#include "tests/engine/plan/policies.h"

namespace penstock {
namespace {

Op OpOn(Lane lane, std::vector<OpId> after) { return {lane, std::move(after), ClipScale{}}; }

TEST(SimulateTest, OpsFollowTheirLaneAndWhatTheyName) {
  StepProgram program;
  program.ops = {OpOn(Lane::kCopyIn, {}), OpOn(Lane::kCompute, {OpId{0}}), OpOn(Lane::kCopyIn, {}),
                 OpOn(Lane::kCompute, {OpId{2}}), OpOn(Lane::kHost, {OpId{3}})};
  const double seconds[] = {1, 2, 4, 8, 16};
  const Simulation simulation = Simulate(program, seconds);
  EXPECT_EQ(simulation.timeline[1].start, 1);
  EXPECT_EQ(simulation.timeline[2].start, 1);
  EXPECT_EQ(simulation.timeline[3].start, 5);
  EXPECT_EQ(simulation.seconds, 29);
  // The compute lane waits 1 for the first copy, 2 for the second and 16 for the host.
  EXPECT_EQ(simulation.exposed_seconds[static_cast<int>(Lane::kCompute)], 19);
  EXPECT_EQ(simulation.exposed_seconds[static_cast<int>(Lane::kCopyIn)], 3);
  EXPECT_EQ(simulation.exposed_seconds[static_cast<int>(Lane::kHost)], 16);
  EXPECT_EQ(simulation.exposed_seconds[static_cast<int>(Lane::kCopyOut)], 0);
  EXPECT_EQ(simulation.busy_seconds[static_cast<int>(Lane::kCompute)], 10);
}

// Seconds of a step of a model whose host is slow: what hides the optimizer shows.
double StepSeconds(const Policy& policy, const MachineProfile& machine) {
  const ModelSpec spec = TinySpec(4, HeadWeights::kSeparate);
  const ModelLayout layout = MakeLayout(spec);
  const StepProgram program =
      *BuildTrainProgram(spec, layout, policy, {.micro_batches = 4, .tokens_per_micro_batch = 64});
  return Simulate(program, OpSeconds(program, spec, layout,
                                     {.tokens_per_micro_batch = 64,
                                      .mean_document_tokens = 16,
                                      .head_chunk_rows = policy.head_chunk_rows},
                                     machine))
      .seconds;
}

constexpr MachineProfile kMachine{.matmul_flops = 1e9,
                                  .attention_forward_flops = 1e9,
                                  .attention_backward_flops = 1e9,
                                  .device_bytes = 1e10,
                                  .copy_in_bytes = 1e9,
                                  .copy_out_bytes = 1e9,
                                  .adamw_parameters = 1e6,
                                  .op_seconds = 1e-6};

TEST(OpCostTest, WhatAPolicySavesShowsInTheSimulation) {
  const double plain = StepSeconds({}, kMachine);
  EXPECT_GT(StepSeconds({.saving = {.level = SaveLevel::kAttention}}, kMachine), plain);
  EXPECT_GT(StepSeconds({.saving = {.level = SaveLevel::kInput}}, kMachine),
            StepSeconds({.saving = {.level = SaveLevel::kAttention}}, kMachine));
  EXPECT_LT(StepSeconds({.update_time = UpdateTime::kNextStep}, kMachine), plain);
  EXPECT_LT(StepSeconds({.placements = PlaceAll(4, {.state = true})}, kMachine), plain);
}

TEST(OpCostTest, EveryRateCounts) {
  const Policy policy{.saving = {SaveLevel::kAll, SavePlace::kHost}};
  const double seconds = StepSeconds(policy, kMachine);
  for (double MachineProfile::*rate :
       {&MachineProfile::matmul_flops, &MachineProfile::attention_forward_flops,
        &MachineProfile::attention_backward_flops, &MachineProfile::device_bytes,
        &MachineProfile::copy_in_bytes, &MachineProfile::copy_out_bytes,
        &MachineProfile::adamw_parameters}) {
    MachineProfile slower = kMachine;
    slower.*rate /= 1000;
    EXPECT_GT(StepSeconds(policy, slower), seconds);
  }
}

}  // namespace
}  // namespace penstock
