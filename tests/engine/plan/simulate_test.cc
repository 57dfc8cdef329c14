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
  const Simulation simulation = Simulate(program, seconds, Contention::None());
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

// Everything else at its full speed.
Contention Halving(Lane slowed, Lane beside) {
  Contention contention = Contention::None();
  for (unsigned lanes = 0; lanes < contention.speeds.size(); ++lanes) {
    if ((lanes & LaneBit(beside)) != 0) {
      contention.speeds[lanes][static_cast<size_t>(slowed)] = 0.5;
    }
  }
  return contention;
}

TEST(SimulateTest, AnOpIsSlowerForAsLongAsAnotherLaneRuns) {
  StepProgram program;
  program.ops = {OpOn(Lane::kHost, {}), OpOn(Lane::kCopyIn, {}), OpOn(Lane::kCompute, {OpId{0}}),
                 OpOn(Lane::kCopyIn, {OpId{2}})};
  const double seconds[] = {10, 4, 1, 3};
  const Simulation simulation = Simulate(program, seconds, Halving(Lane::kHost, Lane::kCopyIn));
  // Half speed while the copy runs: of 10 s, 2 are done by second 4.
  EXPECT_DOUBLE_EQ(simulation.timeline[0].end, 12);
  EXPECT_DOUBLE_EQ(simulation.timeline[1].end, 4);
  EXPECT_DOUBLE_EQ(simulation.timeline[3].start, 13);
  EXPECT_DOUBLE_EQ(simulation.seconds, 16);
  EXPECT_DOUBLE_EQ(simulation.busy_seconds[static_cast<int>(Lane::kHost)], 12);
}

TEST(ContentionTest, AdamwGetsWhatCopiesLeaveOfHostMemory) {
  MachineProfile machine{.copy_in_bytes = 40e9,
                         .copy_out_bytes = 50e9,
                         .adamw_parameters = 5e9,  // 130 GB/s
                         .host_bytes = 150e9,
                         .copy_in_share_beside_out = 0.5,
                         .copy_out_share_beside_in = 0.8};
  constexpr unsigned kIn = LaneBit(Lane::kCopyIn), kOut = LaneBit(Lane::kCopyOut),
                     kHost = LaneBit(Lane::kHost), kCompute = LaneBit(Lane::kCompute);
  const auto speed = [&](unsigned lanes, Lane lane) {
    return ContentionOf(machine).speeds[lanes][static_cast<size_t>(lane)];
  };
  EXPECT_EQ(speed(kHost | kCompute, Lane::kHost), 1);
  EXPECT_DOUBLE_EQ(speed(kHost | kIn, Lane::kHost), 110.0 / 130);
  EXPECT_DOUBLE_EQ(speed(kHost | kOut, Lane::kHost), 100.0 / 130);
  EXPECT_DOUBLE_EQ(speed(kHost | kIn | kOut | kCompute, Lane::kHost), (150.0 - 20 - 40) / 130);
  EXPECT_EQ(speed(kIn | kHost, Lane::kCopyIn), 1);
  EXPECT_EQ(speed(kIn | kOut, Lane::kCopyIn), 0.5);
  EXPECT_EQ(speed(kIn | kOut, Lane::kCopyOut), 0.8);
  EXPECT_EQ(speed(kIn | kOut | kCompute, Lane::kCompute), 1);
  machine.copy_in_share_beside_adamw = 0.75;
  EXPECT_EQ(speed(kIn | kHost, Lane::kCopyIn), 0.75);
  EXPECT_EQ(speed(kIn | kOut | kHost, Lane::kCopyIn), 0.5);
  EXPECT_EQ(speed(kIn | kCompute, Lane::kCopyIn), 1);
  EXPECT_DOUBLE_EQ(speed(kHost | kIn, Lane::kHost), 120.0 / 130);
  machine.host_bytes = 400e9;  // enough for all: no lane is faster than alone
  EXPECT_EQ(speed(kHost | kIn | kOut, Lane::kHost), 1);
  machine.host_bytes = 10e9;  // less than the copies alone: AdamW still gets on
  EXPECT_GT(speed(kHost | kIn | kOut, Lane::kHost), 0);
}

// Seconds of a step of a model whose host is slow: what hides the optimizer shows.
double StepSeconds(const Policy& policy, const MachineProfile& machine) {
  const ModelSpec spec = TinySpec(4, HeadWeights::kSeparate);
  const ModelLayout layout = MakeLayout(spec);
  const StepProgram program =
      *BuildTrainProgram(spec, layout, policy, {.micro_batches = 4, .tokens_per_micro_batch = 64});
  return Simulate(program,
                  OpSeconds(program, spec, layout,
                            {.tokens_per_micro_batch = 64,
                             .mean_document_tokens = 16,
                             .head_chunk_rows = policy.head_chunk_rows},
                            machine),
                  ContentionOf(machine))
      .seconds;
}

constexpr MachineProfile kMachine{.matmul_flops = 1e9,
                                  .matmul_bytes = 1e9,
                                  .attention_forward_flops = 1e9,
                                  .attention_backward_flops = 1e9,
                                  .device_bytes = 1e10,
                                  .copy_in_bytes = 1e9,
                                  .copy_out_bytes = 1e9,
                                  .adamw_parameters = 1e6,
                                  .host_bytes = 2e9,
                                  .op_seconds = 1e-6};

// Twice the width in half the heads has the same operations, and on a GPU other kernels.
TEST(OpCostTest, HeadsTooWideForFusedAttentionAreSlowerOnAGpuOnly) {
  const auto seconds = [](int64_t heads, int64_t head_dim, int64_t element_bytes) {
    ModelSpec spec = TinySpec(1, HeadWeights::kSeparate);
    spec.num_heads = spec.num_kv_heads = heads;
    spec.head_dim = head_dim;
    const ModelLayout layout = MakeLayout(spec);
    const StepProgram program =
        *BuildTrainProgram(spec, layout, {}, {.micro_batches = 1, .tokens_per_micro_batch = 64});
    return OpSeconds(
        program, spec, layout,
        {.tokens_per_micro_batch = 64, .mean_document_tokens = 64, .element_bytes = element_bytes},
        kMachine)[FindOp<ForwardBlock>(program)];
  };
  EXPECT_GT(seconds(2, 2 * kWidestFusedHead, 2), 1.01 * seconds(4, kWidestFusedHead, 2));
  EXPECT_DOUBLE_EQ(seconds(2, 2 * kWidestFusedHead, 4), seconds(4, kWidestFusedHead, 4));
}

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
        &MachineProfile::adamw_parameters, &MachineProfile::matmul_bytes}) {
    MachineProfile slower = kMachine;
    slower.*rate /= 1000;
    EXPECT_GT(StepSeconds(policy, slower), seconds);
  }
}

}  // namespace
}  // namespace penstock
