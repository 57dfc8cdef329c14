#include "engine/plan/search.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "bench/geometry.h"
#include "engine/base/status.h"
#include "engine/plan/op_cost.h"
#include "engine/plan/simulate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/plan/plan_testing.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kGib = int64_t{1} << 30;
// What an H100 80GB leaves to a program.
constexpr int64_t kH100Bytes = 77 * kGib;

// Qwen2.5-7B with so many layers.
ModelSpec SevenB(int64_t layers = 28) {
  ModelSpec spec = *FindGeometry("qwen2.5-7b");
  spec.num_layers = layers;
  spec.window.assign(layers, 0);
  return spec;
}

// A job on an H100.
struct Case {
  ModelSpec spec = SevenB();
  int64_t micro_batch_tokens = 8192;
  int32_t micro_batches = 18;
  int64_t device_bytes = kH100Bytes;
  int64_t host_bytes = 16 * kGib;
  SaveLevel save_at_most = SaveLevel::kAll;
  SearchSpace space = SearchSpace::kEverything;
  int64_t kernel_scratch_bytes = kGib;

  ModelLayout layout = MakeLayout(spec);

  SearchInput Input() const {
    return {.spec = spec,
            .layout = layout,
            .shape = {.micro_batches = micro_batches,
                      .tokens_per_micro_batch = micro_batch_tokens,
                      .element_bytes = 2,
                      .kernel_scratch_bytes = kernel_scratch_bytes},
            .base = {.head_chunk_rows = 2048,
                     .mlp_chunk_rows = micro_batch_tokens > 8192 ? 8192 : 0,
                     .gradient_type = GradientType::kBfloat16},
            .save_at_most = save_at_most,
            .space = space,
            .mean_document_tokens = 1024,
            .machine = FindMachineProfile("h100-80gb-pcie5")->rates,
            .device_bytes = device_bytes,
            .host_bytes = host_bytes};
  }
};

int64_t StateBlocks(const Policy& policy) {
  return std::count_if(policy.placements.begin(), policy.placements.end(),
                       [](const BlockPlacement& placement) { return placement.state; });
}
int64_t MasterBlocks(const Policy& policy) {
  return std::count_if(policy.placements.begin(), policy.placements.end(),
                       [](const BlockPlacement& placement) { return placement.master; });
}
int64_t LayersSaving(const Policy& policy, SaveLevel level) {
  return std::count_if(policy.savings.begin(), policy.savings.end(),
                       [&](const Saving& saving) { return saving.level == level; });
}

// Of a full step, simulated.
double StepSeconds(const Case& job, const Policy& policy,
                   const MachineProfile& machine = Case().Input().machine) {
  const SearchInput input = job.Input();
  const auto program = BuildTrainProgram(job.spec, job.layout, policy, input.shape);
  EXPECT_TRUE(program.ok()) << program.status();
  return Simulate(*program,
                  OpSeconds(*program, job.spec, job.layout,
                            {.tokens_per_micro_batch = job.micro_batch_tokens,
                             .mean_document_tokens = input.mean_document_tokens,
                             .head_chunk_rows = input.base.head_chunk_rows},
                            machine),
                  ContentionOf(machine))
      .seconds;
}

// Full size: verified, inside the budgets, as many bytes as the search said, and its time.
void ExpectAsPromised(const Case& job, const PolicyCandidate& candidate) {
  const SearchInput input = job.Input();
  ProgramShape shape = input.shape;
  shape.arena_budget_bytes = job.device_bytes;
  EXPECT_TRUE(BuildTrainProgram(job.spec, job.layout, candidate.policy, shape).ok());
  const auto program = BuildTrainProgram(job.spec, job.layout, candidate.policy, input.shape);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->arena_bytes, candidate.arena_bytes);
  EXPECT_EQ(program->host_arena_bytes, candidate.host_arena_bytes);
  EXPECT_LE(program->host_arena_bytes, job.host_bytes);
  const double seconds = StepSeconds(job, candidate.policy);
  EXPECT_NEAR(candidate.step_seconds, seconds, 0.01 * seconds) << candidate.words;
}

TEST(SearchTest, ManyTokensOnAnH100RunInRoundsWithWeightsAndSumsResident) {
  const Case job;
  const auto found = ChoosePolicy(job.Input());
  ASSERT_TRUE(found.ok()) << found.status();
  const Policy& policy = found->best.policy;
  EXPECT_EQ(policy.micro_batches_per_round, 1);
  EXPECT_GT(policy.micro_batches_in_first_round, 1);
  EXPECT_TRUE(policy.PlacementOf(28).weights && policy.PlacementOf(1).gradients);
  EXPECT_GE(LayersSaving(policy, SaveLevel::kAll), 26);
  EXPECT_NEAR(StateBlocks(policy), 2, 2);
  // Measured: 11.44 s.
  EXPECT_NEAR(found->best.step_seconds, 11.44, 0.1 * 11.44);
  ExpectAsPromised(job, found->best);
}

TEST(SearchTest, FewTokensOnAnH100KeepOptimizerStateOnTheDevice) {
  const Case job{.micro_batch_tokens = 16384, .micro_batches = 1};
  const auto found = ChoosePolicy(job.Input());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->best.policy.micro_batches_per_round, 0);
  EXPECT_NEAR(StateBlocks(found->best.policy), 12, 4);
  EXPECT_NEAR(StateBlocks(found->best.policy) + MasterBlocks(found->best.policy), 20, 4);
  // Measured, with the state of 20 blocks and no master weights: 1.590 s.
  EXPECT_NEAR(found->best.step_seconds, 1.59, 0.1 * 1.59);
  ExpectAsPromised(job, found->best);
}

TEST(SearchTest, ACapOf24GibMakesOneRoundOfStreamedLayersThatSaveInputs) {
  for (int64_t host_bytes : {int64_t{0}, 16 * kGib}) {
    const Case job{.micro_batches = 8, .device_bytes = 24 * kGib, .host_bytes = host_bytes};
    const auto found = ChoosePolicy(job.Input());
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->best.policy.micro_batches_per_round, 0);
    EXPECT_FALSE(found->best.policy.PlacementOf(28).weights);
    EXPECT_GE(LayersSaving(found->best.policy, SaveLevel::kInput), 26);
    EXPECT_EQ(found->best.host_arena_bytes > 0, host_bytes > 0);
    ExpectAsPromised(job, found->best);
  }
}

TEST(SearchTest, WhatTheHostHasRoomForBesideInputsHoldsAttentionSidesOfSomeLayers) {
  const auto choose = [](int64_t host_bytes) {
    const Case job{.micro_batches = 8, .device_bytes = 24 * kGib, .host_bytes = host_bytes};
    const auto found = ChoosePolicy(job.Input());
    EXPECT_TRUE(found.ok()) << found.status();
    ExpectAsPromised(job, found->best);
    return found->best;
  };
  const PolicyCandidate inputs = choose(16 * kGib), more = choose(24 * kGib);
  EXPECT_EQ(LayersSaving(inputs.policy, SaveLevel::kAttention), 0);
  EXPECT_EQ(LayersSaving(more.policy, SaveLevel::kAttention), 7);
  EXPECT_GE(LayersSaving(more.policy, SaveLevel::kInput), 20);
  EXPECT_THAT(more.words, HasSubstr("in host memory, with attention sides of the first 7"));
  EXPECT_LT(more.step_seconds, inputs.step_seconds);
}

// They are to be worth their bytes where the host is as slow as it may be.
TEST(SearchTest, MasterWeightsOfSomeBlocksStayOnTheDeviceWhereForwardWouldWait) {
  const Case job;
  const auto found = ChoosePolicy(job.Input());
  ASSERT_TRUE(found.ok()) << found.status();
  Policy policy = found->best.policy;
  const int64_t masters = MasterBlocks(policy);
  EXPECT_GE(masters, 3);
  EXPECT_THAT(found->best.words, HasSubstr(absl::StrCat("master weights of the next ", masters)));
  for (BlockPlacement& placement : policy.placements) placement.master = false;
  const MachineProfile slow = Cautious(job.Input().machine);
  EXPECT_LT(StepSeconds(job, found->best.policy, slow), 0.99 * StepSeconds(job, policy, slow));
}

TEST(SearchTest, RunnersUpSayWhyTheyLost) {
  const Case job{.micro_batches = 8, .device_bytes = 24 * kGib};
  const auto found = ChoosePolicy(job.Input());
  ASSERT_TRUE(found.ok()) << found.status();
  std::string all;
  for (const RunnerUp& other : found->runners_up) all += other.words + ": " + other.why + "\n";
  EXPECT_THAT(all, AllOf(HasSubstr("% slower"), HasSubstr("GiB more of device memory"),
                         HasSubstr("rounds of 1 micro-batch, in the first ")));
  EXPECT_THAT(all, ::testing::Not(HasSubstr(found->best.words + ":")));
}

// A small model, so that every budget can be tried.
Case SmallJob(HeadWeights head, int32_t micro_batches) {
  ModelSpec spec = SevenB(7);
  spec.hidden_size = 256;
  spec.intermediate_size = 704;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 64;
  spec.vocab_size = 1000;
  spec.head = head;
  return {.spec = spec,
          .micro_batch_tokens = 512,
          .micro_batches = micro_batches,
          .kernel_scratch_bytes = 1 << 20};
}

TEST(SearchTest, MoreMemoryIsNeverSlowerAndExactlyTheBytesOfAnAnswerGiveItAgain) {
  for (HeadWeights head : {HeadWeights::kSeparate, HeadWeights::kTiedToEmbedding}) {
    for (int32_t micro_batches : {1, 9}) {
      for (int64_t host_bytes : {int64_t{0}, int64_t{20} << 20}) {
        Case job = SmallJob(head, micro_batches);
        job.host_bytes = host_bytes;
        double faster = 0;
        int answers = 0;
        for (job.device_bytes = kGib;; ++answers) {
          const auto found = ChoosePolicy(job.Input());
          if (!found.ok()) {
            EXPECT_EQ(ReasonOf(found.status()), reason::kDeviceMemoryInsufficient);
            break;
          }
          EXPECT_LE(found->best.arena_bytes, job.device_bytes);
          EXPECT_LE(found->best.host_arena_bytes, job.host_bytes);
          EXPECT_GE(found->best.weighed_seconds, faster);
          faster = found->best.weighed_seconds;
          ExpectAsPromised(job, found->best);
          job.device_bytes = found->best.arena_bytes;
          const auto again = ChoosePolicy(job.Input());
          ASSERT_TRUE(again.ok()) << again.status();
          EXPECT_EQ(again->best.words, found->best.words);
          job.device_bytes = found->best.arena_bytes * 7 / 8;
        }
        EXPECT_GT(answers, 5);
      }
    }
  }
}

// What a step's arena holds is enough for an evaluation, which the search does not look at.
TEST(SearchTest, AnEvaluationFitsWhereAStepDoes) {
  for (HeadWeights head : {HeadWeights::kSeparate, HeadWeights::kTiedToEmbedding}) {
    for (int64_t layers : {1, 2, 7}) {
      for (int32_t micro_batches : {1, 5}) {
        Case job = SmallJob(head, micro_batches);
        job.spec.num_layers = layers;
        job.spec.window.resize(layers);
        job.layout = MakeLayout(job.spec);
        const SearchInput input = job.Input();
        ProgramShape one = input.shape;
        one.micro_batches = 1;
        for (job.device_bytes = kGib;;) {
          const auto found = ChoosePolicy(job.Input());
          if (!found.ok()) break;
          const auto evaluation =
              BuildEvaluationProgram(job.spec, job.layout, found->best.policy, one);
          ASSERT_TRUE(evaluation.ok()) << evaluation.status();
          EXPECT_LE(evaluation->arena_bytes, found->best.arena_bytes) << found->best.words;
          EXPECT_EQ(evaluation->host_arena_bytes, 0);
          job.device_bytes = found->best.arena_bytes - 1;
        }
        EXPECT_LT(job.device_bytes, kGib);
      }
    }
  }
}

// Every point of the grid is either infeasible or no faster.
TEST(SearchTest, NoPolicyThatFitsIsFaster) {
  Case job = SmallJob(HeadWeights::kSeparate, 6);
  for (int64_t mib : {48, 64, 96, 128, 512}) {
    job.device_bytes = mib << 20;
    job.host_bytes = int64_t{8} << 20;
    const auto found = ChoosePolicy(job.Input());
    const SearchInput input = job.Input();
    int64_t fitting = 0;
    for (int32_t round : {0, 1}) {
      for (bool weights : {false, true}) {
        for (SaveLevel level : {SaveLevel::kAll, SaveLevel::kAttention, SaveLevel::kInput}) {
          for (int64_t state = 0; state <= 3; ++state) {
            Policy policy = input.base;
            policy.micro_batches_per_round = round;
            policy.saving = {level, SavePlace::kDevice};
            policy.update_time = UpdateTime::kNextStep;
            policy.placements.resize(job.spec.num_blocks());
            for (int64_t block = 0; block < job.spec.num_blocks(); ++block) {
              policy.placements[block] = {weights, round > 0, block < state};
            }
            const auto program = BuildTrainProgram(job.spec, job.layout, policy, input.shape);
            ASSERT_TRUE(program.ok()) << program.status();
            if (program->arena_bytes > job.device_bytes) continue;
            ++fitting;
            ASSERT_TRUE(found.ok()) << found.status();
            const CostInput cost{.tokens_per_micro_batch = 512,
                                 .mean_document_tokens = 1024,
                                 .head_chunk_rows = 2048};
            const std::vector<double> op_seconds =
                OpSeconds(*program, job.spec, job.layout, cost, Cautious(input.machine));
            double seconds =
                Simulate(*program, op_seconds, ContentionOf(Cautious(input.machine))).seconds;
            for (size_t i = 0; i < op_seconds.size(); ++i) {
              if (program->ops[i].lane == Lane::kHost) seconds += kHostWeight * op_seconds[i];
            }
            EXPECT_LE(found->best.weighed_seconds, 1.000001 * seconds);
          }
        }
      }
    }
    if (mib == 512) {
      EXPECT_EQ(fitting, 48);
    }
  }
}

TEST(SearchTest, ManyLayersAndManyMicroBatchesTakeBoundedWork) {
  const Case hundred_layers{.spec = SevenB(100), .device_bytes = 400 * kGib};
  const Case many{.micro_batch_tokens = 1024, .micro_batches = 9000, .host_bytes = 900 * kGib};
  for (const Case* job : {&hundred_layers, &many}) {
    const auto found = ChoosePolicy(job->Input());
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_LE(found->ops, kMaxSearchOps + kMaxSearchOps / 50);  // one candidate more
    EXPECT_LE(found->best.arena_bytes, job->device_bytes);
  }
}

// Where all fits, most candidates lose against what saves everything, and all of an order are
// compared with the same: 64 layers once took 2,317 programs of 2.5 million ops.
TEST(SearchTest, WhatCandidatesHaveInCommonIsBuiltOnce) {
  const Case job{.spec = SevenB(64), .micro_batches = 8, .device_bytes = 1000 * kGib};
  const auto found = ChoosePolicy(job.Input());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_LE(found->programs, 1000);
  EXPECT_LE(found->ops, 1'000'000);
  SearchEffort effort{.most_ops = found->ops};
  SearchInput input = job.Input();
  input.effort = &effort;
  ASSERT_TRUE(ChoosePolicy(input).ok());
  EXPECT_EQ(effort.ops, found->ops);
  EXPECT_TRUE(effort.Spent());
}

TEST(SearchTest, WhatFitsNowhereIsRefusedWithTheLeastThatWould) {
  Case job{.micro_batches = 8, .device_bytes = 4 * kGib};
  const absl::Status status = ChoosePolicy(job.Input()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(status), reason::kDeviceMemoryInsufficient);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a step needs at least"));
  EXPECT_EQ(MetadataOf(status)["usable_bytes"], std::to_string(4 * kGib));
  job.device_bytes = std::stoll(MetadataOf(status)["needed_bytes"]);
  EXPECT_TRUE(ChoosePolicy(job.Input()).ok());
  --job.device_bytes;
  EXPECT_FALSE(ChoosePolicy(job.Input()).ok());
}

TEST(SearchTest, RoundsThatAreKeptArePlannedInsideOtherCapsOrRefused) {
  Case job = SmallJob(HeadWeights::kTiedToEmbedding, 9);
  job.device_bytes = kGib;
  const auto roomy = ChoosePolicy(job.Input());
  ASSERT_TRUE(roomy.ok()) << roomy.status();
  const RoundingChoice kept = RoundingOf(roomy->best.policy);
  bool others = false, refused = false;
  for (job.device_bytes = roomy->best.arena_bytes; job.device_bytes > 1 << 20;
       job.device_bytes = job.device_bytes * 2 / 3) {
    SearchInput input = job.Input();
    const auto free = ChoosePolicy(input);
    input.kept_rounds = kept;
    const auto same = ChoosePolicy(input);
    if (!same.ok()) {
      EXPECT_EQ(ReasonOf(same.status()), reason::kDeviceMemoryInsufficient);
      refused = refused || free.ok();
      continue;
    }
    EXPECT_EQ(RoundingOf(same->best.policy), kept);
    ASSERT_TRUE(free.ok());
    EXPECT_LE(free->best.weighed_seconds, same->best.weighed_seconds);
    others |= same->best.words != roomy->best.words;
    ExpectAsPromised(job, same->best);
  }
  EXPECT_TRUE(others);   // they run otherwise
  EXPECT_TRUE(refused);  // and where they do not fit, others would
}

// The host is through with weights sooner when moments wait, and has more to do in all.
TEST(SearchTest, MomentsComeLaterWhereTheStepLeavesTheHostTheTime) {
  const Case large,
      small{.micro_batch_tokens = 2048, .micro_batches = 1, .device_bytes = 30 * kGib};
  for (const auto& [job, chosen, other] :
       {std::tuple(large, UpdateTime::kNextStepMomentsLater, UpdateTime::kNextStep),
        std::tuple(small, UpdateTime::kNextStep, UpdateTime::kNextStepMomentsLater)}) {
    const auto found = ChoosePolicy(job.Input());
    ASSERT_TRUE(found.ok()) << found.status();
    Policy policy = found->best.policy;
    EXPECT_EQ(policy.update_time, chosen);
    EXPECT_EQ(found->best.words.find("moments after all weights") != std::string::npos,
              chosen == UpdateTime::kNextStepMomentsLater);
    policy.update_time = other;
    for (BlockPlacement& placement : policy.placements) placement.master = false;
    EXPECT_LT(StepSeconds(job, found->best.policy), 0.98 * StepSeconds(job, policy));
  }
}

// On a device with little room for state, where float32 would gain by it.
TEST(SearchTest, SmallerMomentsTakeLessTimeOnTheHostAndStayThere) {
  const auto choose = [](MomentType type) {
    const Case job{.micro_batch_tokens = 16384, .micro_batches = 1, .device_bytes = 20 * kGib};
    SearchInput input = job.Input();
    input.base.moment_type = type;
    const auto found = ChoosePolicy(input);
    EXPECT_TRUE(found.ok()) << found.status();
    EXPECT_LE(found->best.arena_bytes, job.device_bytes);
    EXPECT_TRUE(type == MomentType::kFloat32 || StateBlocks(found->best.policy) == 0);
    return found->best;
  };
  const PolicyCandidate f32 = choose(MomentType::kFloat32), bf16 = choose(MomentType::kBfloat16),
                        int8 = choose(MomentType::kInt8Blocks);
  EXPECT_LT(bf16.step_seconds, f32.step_seconds);
  EXPECT_LE(int8.step_seconds, bf16.step_seconds);
  EXPECT_EQ(MomentBytes(MomentType::kInt8Blocks, 256), 2 * (256 + 4));
}

TEST(SearchTest, SavesNoMoreThanTheJobAllows) {
  for (SaveLevel level : {SaveLevel::kAttention, SaveLevel::kInput}) {
    const Case job{.save_at_most = level};
    const auto found = ChoosePolicy(job.Input());
    ASSERT_TRUE(found.ok()) << found.status();
    for (const Saving& saving : found->best.policy.savings) EXPECT_GE(saving.level, level);
  }
}

TEST(SearchTest, WhereTheDeviceIsTheHostOnlySavingIsChosen) {
  Case job = SmallJob(HeadWeights::kTiedToEmbedding, 8);
  job.space = SearchSpace::kSavingOnly;
  const auto roomy = ChoosePolicy(job.Input());
  ASSERT_TRUE(roomy.ok()) << roomy.status();
  EXPECT_EQ(roomy->best.words, "weights streamed, everything saved");
  EXPECT_EQ(roomy->best.policy.micro_batches_per_round, 0);
  EXPECT_EQ(roomy->best.policy.update_time, UpdateTime::kEndOfStep);
  job.device_bytes = roomy->best.arena_bytes - 1;
  const auto tight = ChoosePolicy(job.Input());
  ASSERT_TRUE(tight.ok()) << tight.status();
  EXPECT_EQ(LayersSaving(tight->best.policy, SaveLevel::kAll), 6);
  EXPECT_EQ(StateBlocks(tight->best.policy), 0);
}

TEST(MachineProfileTest, CardsAreFoundByWhatTheDriverCallsThem) {
  EXPECT_EQ(ProfileOfCard("NVIDIA H100 80GB HBM3").name, "h100-80gb-pcie5");
  EXPECT_EQ(ProfileOfCard("NVIDIA H100 80GB HBM3").source, ProfileSource::kMeasured);
  EXPECT_EQ(ProfileOfCard("NVIDIA H200").name, "h200-141gb-pcie5");
  EXPECT_EQ(ProfileOfCard("NVIDIA GH200 480GB").name, "gh200-96gb");
  EXPECT_EQ(ProfileOfCard("NVIDIA A100-SXM4-80GB").name, "a100-80gb-pcie4");
  EXPECT_EQ(ProfileOfCard("NVIDIA GeForce RTX 4090").name, "rtx4090-24gb-pcie4");
  EXPECT_EQ(ProfileOfCard("NVIDIA T4").source, ProfileSource::kEstimate);
  EXPECT_EQ(ProfileOfCard("").source, ProfileSource::kEstimate);
  EXPECT_THAT(std::string(FindMachineProfile("h300").status().message()),
              AllOf(HasSubstr("h300"), HasSubstr("rtx5090-32gb-pcie5")));
  for (const NamedProfile& profile : MachineProfiles()) {
    EXPECT_TRUE(FindMachineProfile(profile.name).ok());
    EXPECT_GT(profile.device_memory_bytes, 0);
    for (double rate : {profile.rates.matmul_flops, profile.rates.copy_in_bytes,
                        profile.rates.adamw_parameters, profile.rates.device_bytes}) {
      EXPECT_GT(rate, 0);
    }
  }
}

}  // namespace
}  // namespace penstock
