// The CUDA executor on whole steps, held to the CPU executor and to itself. bf16 has 8 bits, so
// losses agree to a percent or two and gradients to a few; what a program may not change agrees to
// the bit.
#include <cmath>
#include <string>

#include "engine/base/labels.h"
#include "engine/base/status.h"
#include "engine/exec/executor.h"
#include "engine/exec/gpu_devices.h"
#include "engine/plan/verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/exec/random_program.h"
#include "tests/engine/exec/tiny_job.h"
#include "tests/engine/plan/plan_testing.h"
#include "tests/engine/plan/policies.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

constexpr int kSteps = 50;
constexpr double kLossBound = 0.03;
constexpr double kGradientBound = 0.04;

TinyJob::Options OnCuda(TinyJob::Options options) {
  options.backend = Backend::kCuda;
  return options;
}

double RelativeDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

class CudaExecutorTest : public testing::Test {
 protected:
  void SetUp() override {
    if (ListGpuDevices().empty()) GTEST_SKIP() << "no GPU";
  }
};

void ExpectFollowsTheCpu(const TinyJob::Options& options) {
  const auto documents = RandomDocuments(9, 1);
  TinyJob cpu(options, documents);
  TinyJob cuda(OnCuda(options), documents);
  cpu.optimizer().learning_rate = cuda.optimizer().learning_rate = 3e-3;
  double first_loss = 0, first_expected = 0, loss = 0;
  for (int step = 0; step < kSteps; ++step) {
    const StepResult expected = cpu.Run(), actual = cuda.Run();
    loss = actual.loss_sum;
    if (step == 0) {
      first_loss = loss;
      EXPECT_LT(RelativeDifference(cuda.Gradients(), cpu.Gradients()), kGradientBound);
      EXPECT_NEAR(actual.decision.grad_norm / expected.decision.grad_norm, 1, kGradientBound);
    }
    EXPECT_EQ(actual.labelled_tokens, expected.labelled_tokens);
    EXPECT_EQ(actual.decision.outcome, StepOutcome::kApplied);
    // By the first loss: what is left of it when the documents are known by heart is noise.
    if (step == 0) first_expected = expected.loss_sum;
    EXPECT_NEAR((actual.loss_sum - expected.loss_sum) / first_expected, 0, kLossBound)
        << "step " << step;
  }
  EXPECT_LT(loss, 0.9 * first_loss);
  EXPECT_EQ(cuda.store().updates_applied, kSteps);
}

TEST_F(CudaExecutorTest, FollowsTheCpuForFiftySteps) {
  for (HeadWeights head : {HeadWeights::kTiedToEmbedding, HeadWeights::kSeparate}) {
    ExpectFollowsTheCpu({.head = head});
    ExpectFollowsTheCpu({.head = head, .cut = {.tokens_per_micro_batch = 128}});
  }
}

TEST_F(CudaExecutorTest, FollowsTheCpuWithTheSwitchesOfEveryFamily) {
  ExpectFollowsTheCpu({.adjust = [](ModelSpec& spec) { spec.qk_norm = QkNorm::kPerHead; }});
  ExpectFollowsTheCpu({.adjust = [](ModelSpec& spec) { spec.qkv_bias = true; }});
  ExpectFollowsTheCpu({.adjust = [](ModelSpec& spec) { spec.o_bias = spec.mlp_bias = true; }});
  ExpectFollowsTheCpu({.adjust = [](ModelSpec& spec) { spec.window = {3, 0, 2}; }});
  ExpectFollowsTheCpu({.adjust = [](ModelSpec& spec) {
    spec.num_heads = 3;
    spec.num_kv_heads = 1;
    spec.head_dim = 10;
    spec.attention_scale = 1 / std::sqrt(10.0);
  }});
}

// Heads as Gemma has them: too wide for cuDNN, normed, with windows on some layers.
void WideHeads(ModelSpec& spec) {
  spec.num_heads = 2;
  spec.num_kv_heads = 1;
  spec.head_dim = 256;
  spec.attention_scale = 1 / std::sqrt(256.0);
  spec.qk_norm = QkNorm::kPerHead;
  spec.window = {3, 0, 2};
}

TEST_F(CudaExecutorTest, FollowsTheCpuWithHeadsOf256) {
  ExpectFollowsTheCpu({.adjust = WideHeads});
  ExpectFollowsTheCpu({.cut = {.tokens_per_micro_batch = 128}, .adjust = WideHeads});
}

TEST_F(CudaExecutorTest, SameProgramTwiceGivesTheSameBits) {
  const auto documents = RandomDocuments(9, 2);
  for (void (*adjust)(ModelSpec&) : {static_cast<void (*)(ModelSpec&)>(nullptr), &WideHeads}) {
    const TinyJob::Options options = OnCuda({.adjust = adjust});
    TinyJob first(options, documents), second(options, documents);
    const StepResult a = first.Run(5), b = second.Run(5);
    EXPECT_EQ(a.loss_sum, b.loss_sum);
    EXPECT_EQ(a.decision.grad_norm, b.decision.grad_norm);
    EXPECT_EQ(first.State(), second.State());
  }
}

TEST_F(CudaExecutorTest, EverySaveLevelAndSlotCountGivesTheSameBits) {
  const auto documents = RandomDocuments(7, 3);
  for (HeadWeights head : {HeadWeights::kTiedToEmbedding, HeadWeights::kSeparate}) {
    TinyJob reference(OnCuda({.head = head}), documents);
    reference.Run(3);
    for (SaveLevel level : {SaveLevel::kAll, SaveLevel::kAttention, SaveLevel::kInput}) {
      for (int slots : {1, 2, 3, 5}) {
        const Policy policy{.saving = {.level = level}, .decoder_slots = slots};
        TinyJob job(OnCuda({.head = head, .policy = policy}), documents);
        job.Run(3);
        EXPECT_EQ(job.State(), reference.State())
            << static_cast<int>(level) << " " << slots << " slots";
      }
    }
  }
}

TEST_F(CudaExecutorTest, EveryPolicyGivesTheSameBits) {
  const auto documents = RandomDocuments(9, 13);
  for (GradientType type : {GradientType::kFloat32, GradientType::kBfloat16}) {
    for (HeadWeights head : {HeadWeights::kTiedToEmbedding, HeadWeights::kSeparate}) {
      TinyJob reference(OnCuda({.head = head, .policy = {.gradient_type = type}}), documents);
      const StepResult first = reference.Run(2);
      const double loss = reference.Evaluate();
      const StepResult expected = reference.Run(2);
      for (const auto& [name, policy] : PoliciesFor(3, type)) {
        // Rounds change the order in which a tied head and the embedding add to one gradient.
        if (head == HeadWeights::kTiedToEmbedding && policy.micro_batches_per_round > 0) continue;
        TinyJob job(OnCuda({.head = head, .policy = policy}), documents);
        EXPECT_EQ(job.Run(2).loss_sum, first.loss_sum) << name;
        EXPECT_EQ(job.Evaluate(), loss) << name;
        EXPECT_EQ(job.Run(2).decision.grad_norm, expected.decision.grad_norm) << name;
        EXPECT_EQ(job.store().updates_applied, 4) << name;
        EXPECT_TRUE(job.State() == reference.State()) << name;
      }
    }
  }
}

TEST_F(CudaExecutorTest, UpdatesWithBackwardGiveTheBitsOfAnUnclippedStep) {
  const auto documents = RandomDocuments(9, 13);
  for (GradientType type : {GradientType::kFloat32, GradientType::kBfloat16}) {
    for (HeadWeights head : {HeadWeights::kTiedToEmbedding, HeadWeights::kSeparate}) {
      TinyJob reference(OnCuda({.head = head, .policy = {.gradient_type = type}}), documents);
      reference.optimizer().max_grad_norm = 0;
      const StepResult expected = reference.Run(3);
      for (const auto& [name, policy] : PoliciesWithBackward(3, type)) {
        if (head == HeadWeights::kTiedToEmbedding && policy.micro_batches_per_round > 0) continue;
        TinyJob job(OnCuda({.head = head, .policy = policy}), documents);
        EXPECT_EQ(job.Run(3).decision.grad_norm, expected.decision.grad_norm) << name;
        EXPECT_EQ(job.Evaluate(), reference.Evaluate()) << name;
        EXPECT_TRUE(job.State() == reference.State()) << name;
      }
    }
  }
}

// BC-13: layers of 235 MB, copies and matrices of the size that real models have, through 1 and 2
// slots, against everything resident.
TEST_F(CudaExecutorTest, Bc13LargeLayersStreamedAndResidentGiveTheSameBits) {
  const auto large = [](ModelSpec& spec) {
    spec.hidden_size = 2048;
    spec.intermediate_size = 16384;
    spec.num_heads = spec.num_kv_heads = 16;
    spec.head_dim = 128;
    spec.attention_scale = 1 / std::sqrt(128.0);
  };
  const auto documents = RandomDocuments(40, 18);
  constexpr int64_t kLayers = 3;
  const auto options = [&](const Policy& policy) {
    return OnCuda({.layers = kLayers,
                   .policy = policy,
                   .cut = {.tokens_per_micro_batch = 128},
                   .adjust = large,
                   .arena_fill = 0xFF});
  };
  TinyJob resident(options({.gradient_type = GradientType::kBfloat16,
                            .placements = PlaceAll(
                                kLayers, {.weights = true, .gradients = true, .state = true})}),
                   documents);
  ASSERT_GT(resident.program().micro_batches, 1);
  const double norm = resident.Run(2).decision.grad_norm;
  const std::vector<uint8_t> expected = resident.State();
  for (int slots : {1, 2}) {
    TinyJob streamed(options({.saving = {.level = SaveLevel::kInput},
                              .decoder_slots = slots,
                              .gradient_type = GradientType::kBfloat16,
                              .update_time = UpdateTime::kNextStep}),
                     documents);
    EXPECT_EQ(streamed.Run(2).decision.grad_norm, norm) << slots;
    EXPECT_TRUE(streamed.State() == expected) << slots;
  }
}

struct HeadShape {
  int64_t hidden, heads, kv_heads, head_dim, tokens;
};

// BC-15: what lay in memory before shows in no bit, for shapes on both sides of every tile.
TEST_F(CudaExecutorTest, Bc15WhatTheArenaHeldBeforeDoesNotMatter) {
  static HeadShape shape;  // `adjust` is a plain function
  for (const HeadShape& next :
       {HeadShape{40, 4, 1, 64, 17}, HeadShape{72, 8, 2, 80, 127}, HeadShape{136, 14, 2, 96, 128},
        HeadShape{200, 16, 8, 128, 129}, HeadShape{264, 32, 4, 64, 256},
        HeadShape{72, 3, 1, 160, 65}, HeadShape{136, 4, 2, 256, 130}}) {
    shape = next;
    const auto options = [](uint8_t fill) {
      return OnCuda({.cut = {.tokens_per_micro_batch = shape.tokens},
                     .adjust =
                         [](ModelSpec& spec) {
                           spec.hidden_size = shape.hidden;
                           spec.num_heads = shape.heads;
                           spec.num_kv_heads = shape.kv_heads;
                           spec.head_dim = shape.head_dim;
                         },
                     .arena_fill = fill});
    };
    const auto documents = RandomDocuments(9, 20);
    TinyJob zeros(options(0), documents), poison(options(0xFF), documents);
    const StepResult expected = zeros.Run(2), actual = poison.Run(2);
    EXPECT_TRUE(std::isfinite(expected.loss_sum));
    EXPECT_EQ(actual.loss_sum, expected.loss_sum) << shape.head_dim;
    EXPECT_EQ(actual.decision.grad_norm, expected.decision.grad_norm) << shape.head_dim;
    EXPECT_TRUE(poison.State() == zeros.State()) << shape.head_dim;
  }
}

TEST_F(CudaExecutorTest, Bc55LockedOrNotGivesTheSameBits) {
  const auto documents = RandomDocuments(9, 21);
  const Policy policy{.saving = {.level = SaveLevel::kAll}, .update_time = UpdateTime::kNextStep};
  std::optional<std::vector<uint8_t>> expected;
  for (const PageLock lock : {PageLock::kRequired, PageLock::kPreferred, PageLock::kOff}) {
    TinyJob job(OnCuda({.policy = policy, .page_lock = lock}), documents);
    EXPECT_EQ(job.executor().notice().empty(), lock != PageLock::kOff) << job.executor().notice();
    job.Run(3);
    if (!expected) expected = job.State();
    EXPECT_TRUE(job.State() == *expected);
  }
}

TEST_F(CudaExecutorTest, RandomValidProgramsGiveTheSameBits) {
  const auto documents = RandomDocuments(6, 4);
  TinyJob plain(OnCuda({}), documents);
  plain.Run(2);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const Policy policy{.saving = {.level = static_cast<SaveLevel>(seed % 3)},
                        .decoder_slots = 1 + static_cast<int>(seed % 4)};
    TinyJob job(OnCuda({.policy = policy}), documents);
    const StepProgram scrambled = Scramble(job.program(), seed);
    for (int step = 0; step < 2; ++step) {
      const auto result = job.TryRun(scrambled);
      ASSERT_TRUE(result.ok()) << result.status();
    }
    EXPECT_EQ(job.State(), plain.State()) << "seed " << seed << "\n" << ToText(scrambled);
  }
}

TEST_F(CudaExecutorTest, EveryCutIntoMicroBatchesGivesTheSameStep) {
  const auto documents = RandomDocuments(9, 5);
  TinyJob whole(OnCuda({.cut = {.tokens_per_micro_batch = 128}}), documents);
  const StepResult expected = whole.Run();
  for (const TinyCut& cut : {TinyCut{16, 0}, TinyCut{32, 19}, TinyCut{256, 0}, TinyCut{13, 0}}) {
    TinyJob job(OnCuda({.cut = cut}), documents);
    const StepResult result = job.Run();
    EXPECT_EQ(result.labelled_tokens, expected.labelled_tokens);
    EXPECT_NEAR(result.loss_sum / expected.loss_sum, 1, kLossBound);
    EXPECT_LT(RelativeDifference(job.Gradients(), whole.Gradients()), kGradientBound);
  }
}

TEST_F(CudaExecutorTest, ClipsToTheExactGlobalNorm) {
  const auto documents = RandomDocuments(8, 6);
  TinyJob job(OnCuda({}), documents);
  job.optimizer().max_grad_norm = 1e-3;
  const StepResult result = job.Run();
  double sum = 0;
  for (float gradient : job.Gradients()) sum += static_cast<double>(gradient) * gradient;
  EXPECT_NEAR(result.decision.grad_norm / std::sqrt(sum), 1, 1e-9);
  EXPECT_DOUBLE_EQ(result.decision.clip_scale, 1e-3 / result.decision.grad_norm);
}

// A step of one micro-batch of the job, that the test may spoil.
struct OneBatch {
  std::vector<int32_t> ids = std::vector<int32_t>(16, 1);
  std::vector<int32_t> positions = std::vector<int32_t>(16, 0);
  std::vector<int32_t> labels = std::vector<int32_t>(16, 2);
  std::vector<int32_t> starts{0, 16};

  absl::Status Run(TinyJob& job, int64_t labelled_tokens) {
    const absl::Status prepared = job.executor().Prepare(job.program());
    if (!prepared.ok()) return prepared;
    const std::vector<MicroBatchView> views(
        job.program().micro_batches,
        {ids.data(), positions.data(), labels.data(), starts.data(), 1, 16});
    StepResult result;
    return job.executor().Run(
        job.program(),
        {.micro_batches = views, .labelled_tokens = labelled_tokens, .optimizer = job.optimizer()},
        result);
  }
};

TEST_F(CudaExecutorTest, MiscountedLabelsStopTheStepBeforeTheUpdate) {
  TinyJob job(OnCuda({}), RandomDocuments(5, 7));
  const auto state = job.State();
  const absl::Status status = OneBatch().Run(job, 99);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("99"));
  EXPECT_EQ(job.State(), state);
  EXPECT_EQ(job.Run().decision.outcome, StepOutcome::kApplied);
}

TEST_F(CudaExecutorTest, StepsThatTeachNothingChangeNothing) {
  TinyJob job(OnCuda({}), RandomDocuments(5, 8));
  const auto state = job.State();
  OneBatch batch;
  batch.labels.assign(16, kIgnoreLabel);
  EXPECT_TRUE(batch.Run(job, 0).ok());
  EXPECT_EQ(job.State(), state);
  job.optimizer().learning_rate = 0;
  EXPECT_EQ(job.Run().decision.outcome, StepOutcome::kApplied);
  EXPECT_EQ(job.State(), state);
}

TEST_F(CudaExecutorTest, InputThatKernelsCannotCheckIsRefusedByPlaceAndValue) {
  TinyJob job(OnCuda({}), RandomDocuments(5, 9));
  const auto refused = [&job](const char* text, auto spoil) {
    OneBatch batch;
    spoil(batch);
    const absl::Status status = batch.Run(job, 16 * job.program().micro_batches);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  refused("ids[3] is 40", [](OneBatch& batch) { batch.ids[3] = 40; });
  refused("ids[0] is -1", [](OneBatch& batch) { batch.ids[0] = -1; });
  refused("positions[5] is 256", [](OneBatch& batch) { batch.positions[5] = 256; });
  refused("labels[2] is -2", [](OneBatch& batch) { batch.labels[2] = -2; });
  refused("document_starts go from 0 to 9", [](OneBatch& batch) { batch.starts[1] = 9; });
  EXPECT_EQ(job.Run().decision.outcome, StepOutcome::kApplied);
}

TEST_F(CudaExecutorTest, RefusesProgramsItCannotRun) {
  TinyJob job(OnCuda({}), RandomDocuments(3, 10));
  StepProgram larger = job.program();
  larger.arena_bytes += 1;
  EXPECT_EQ(job.executor().Prepare(larger).code(), absl::StatusCode::kResourceExhausted);
  StepProgram moved = job.program();
  for (Op& op : moved.ops) {
    if (std::holds_alternative<ClipScale>(op.body)) op.lane = Lane::kCompute;
  }
  EXPECT_FALSE(job.executor().Prepare(moved).ok());
}

TEST_F(CudaExecutorTest, RefusesAnArenaThatTheDeviceCannotHold) {
  TinyJob job({}, RandomDocuments(3, 12));
  const absl::Status status = CreateCudaExecutor(TinySpec(3, HeadWeights::kTiedToEmbedding),
                                                 job.store(), {.arena_bytes = int64_t{1} << 50})
                                  .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(status), reason::kDeviceMemoryInsufficient);
  EXPECT_THAT(std::string(status.message()), HasSubstr("are free"));
  TinyJob next(OnCuda({}), RandomDocuments(3, 12));  // the failure left nothing behind
  EXPECT_EQ(next.Run().decision.outcome, StepOutcome::kApplied);
}

TEST_F(CudaExecutorTest, TimelineHasEveryOpInOrder) {
  TinyJob job(OnCuda({}), RandomDocuments(5, 11));
  const StepResult result = job.Run(2);
  const auto times = job.executor().timeline();
  const StepProgram& program = job.program();
  ASSERT_EQ(times.size(), program.ops.size());
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_LE(times[i].start_ns, times[i].end_ns);
    if (program.ops[i].lane == Lane::kHost) continue;
    for (OpId after : program.ops[i].after) {
      if (program.ops[Index(after)].lane == Lane::kHost) continue;
      constexpr int64_t kClockNs = 2000;  // an event's resolution, twice
      EXPECT_GE(times[i].start_ns, times[Index(after)].end_ns - kClockNs);
    }
  }
  for (double seconds : result.busy_seconds) EXPECT_GT(seconds, 0);
}

}  // namespace
}  // namespace penstock
