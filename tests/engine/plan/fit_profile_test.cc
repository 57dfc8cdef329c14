#include "engine/plan/fit_profile.h"

#include "bench/geometry.h"
#include "engine/plan/train_program.h"
#include "gtest/gtest.h"

namespace penstock {
namespace {

ModelSpec Large() {
  ModelSpec spec = *FindGeometry("qwen2.5-7b");
  spec.num_layers = 3;
  spec.window.assign(3, 0);
  spec.vocab_size = 4096;
  return spec;
}

ModelSpec Small() {
  ModelSpec spec = *FindGeometry("qwen2.5-0.5b");
  spec.num_layers = 3;
  spec.window.assign(3, 0);
  spec.vocab_size = 4096;
  return spec;
}

// Steps of short and of long documents and of two sizes of products, as a calibration runs them, on
// a machine of these rates, whose lanes contend. `noise`: how far every other op is off.
MachineProfile Fitted(const MachineProfile& truth, const MachineProfile& prior, double noise) {
  const ModelSpec specs[] = {Large(), Small()};
  struct Model {
    ModelSpec spec;
    ModelLayout layout;
    StepProgram program;
    CostInput cost;
  };
  std::vector<Model> models;
  for (const ModelSpec& spec : specs) {
    for (double document : {64.0, 1024.0, 4096.0}) {
      for (UpdateTime time : {UpdateTime::kNextStep, UpdateTime::kEndOfStep}) {
        const ModelLayout layout = MakeLayout(spec);
        const Policy policy{.gradient_type = GradientType::kBfloat16, .update_time = time};
        models.push_back(
            {spec,
             layout,
             *BuildTrainProgram(
                 spec, layout, policy,
                 {.micro_batches = 2, .tokens_per_micro_batch = 4096, .element_bytes = 2}),
             {.tokens_per_micro_batch = 4096,
              .mean_document_tokens = document,
              .head_chunk_rows = policy.head_chunk_rows}});
      }
    }
  }
  std::vector<MeasuredProgram> runs;
  for (const Model& model : models) {
    std::vector<double> seconds =
        OpSeconds(model.program, model.spec, model.layout, model.cost, truth);
    for (size_t op = 0; op < seconds.size(); ++op) {
      seconds[op] *= 1 + (op % 2 == 0 ? noise : -noise);
    }
    runs.push_back({model.program, model.spec, model.layout, model.cost,
                    Simulate(model.program, seconds, ContentionOf(truth)).timeline});
  }
  return FitProfile(runs, prior);
}

void ExpectRates(const MachineProfile& found, const MachineProfile& truth, double share) {
  EXPECT_NEAR(found.matmul_flops / truth.matmul_flops, 1, share);
  EXPECT_NEAR(found.attention_forward_flops / truth.attention_forward_flops, 1, 3 * share);
  EXPECT_NEAR(found.attention_backward_flops / truth.attention_backward_flops, 1, 3 * share);
  EXPECT_NEAR(found.long_attention_forward_flops / truth.long_attention_forward_flops, 1,
              3 * share);
  EXPECT_NEAR(found.long_attention_backward_flops / truth.long_attention_backward_flops, 1,
              3 * share);
  EXPECT_NEAR(found.device_bytes / truth.device_bytes, 1, 3 * share);
  EXPECT_NEAR(found.copy_in_bytes / truth.copy_in_bytes, 1, share);
  EXPECT_NEAR(found.copy_out_bytes / truth.copy_out_bytes, 1, share);
  EXPECT_NEAR(found.adamw_parameters / truth.adamw_parameters, 1, share);
  EXPECT_NEAR(found.matmul_bytes / truth.matmul_bytes, 1, 5 * share);
  EXPECT_NEAR(found.host_bytes / truth.host_bytes, 1, 3 * share);
  EXPECT_NEAR(found.copy_in_share_beside_out, truth.copy_in_share_beside_out, 2 * share);
  EXPECT_NEAR(found.copy_out_share_beside_in, truth.copy_out_share_beside_in, 2 * share);
  EXPECT_NEAR(found.copy_in_share_beside_adamw, truth.copy_in_share_beside_adamw, 2 * share);
  EXPECT_NEAR(found.copy_out_share_beside_adamw, truth.copy_out_share_beside_adamw, 2 * share);
}

TEST(FitProfileTest, FindsTheRatesOfTheMachineThatWasMeasured) {
  const MachineProfile h100 = MachineProfiles()[0].rates;
  for (const NamedProfile& machine : MachineProfiles()) {
    SCOPED_TRACE(machine.name);
    // Known before: another machine.
    ExpectRates(Fitted(machine.rates, h100, 0), machine.rates, 0.02);
  }
}

TEST(FitProfileTest, ToleratesMeasurementsThatScatter) {
  const MachineProfile h100 = MachineProfiles()[0].rates;
  ExpectRates(Fitted(h100, FindMachineProfile("a100-80gb-pcie4")->rates, 0.05), h100, 0.1);
}

TEST(FitProfileTest, WhatWasNotMeasuredStaysAsKnown) {
  const MachineProfile h100 = MachineProfiles()[0].rates;
  const MachineProfile found = FitProfile({}, h100);
  ExpectRates(found, h100, 1e-6);
  EXPECT_EQ(found.storage_read_bytes, h100.storage_read_bytes);
}

}  // namespace
}  // namespace penstock
