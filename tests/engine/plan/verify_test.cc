// Each kind of broken program is refused, by name of the op at fault.
#include "engine/plan/verify.h"

#include <functional>
#include <ostream>
#include <string>

#include "engine/plan/hazards.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/plan/plan_testing.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

StepProgram Build(const Policy& policy, HeadWeights head) {
  const ModelSpec spec = TinySpec(3, head);
  const auto program = BuildTrainProgram(spec, MakeLayout(spec), policy,
                                         {.micro_batches = 2, .tokens_per_micro_batch = 8});
  EXPECT_TRUE(program.ok()) << program.status();
  return *program;
}

StepProgram Program(HeadWeights head = HeadWeights::kSeparate, SaveLevel level = SaveLevel::kAll) {
  return Build({.saving = {.level = level}, .decoder_slots = 2}, head);
}

// Where a mutation is not about order, the order is derived again, so that it is not to blame.
enum class Order { kKeep, kDerive };

struct Broken {
  std::string name;
  std::string message;
  Order order;
  std::function<void(StepProgram&)> mutate;
};

void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.name; }

class VerifyBrokenTest : public testing::TestWithParam<Broken> {};

TEST_P(VerifyBrokenTest, IsRefused) {
  StepProgram program = Program();
  GetParam().mutate(program);
  if (GetParam().order == Order::kDerive) DeriveOrder(program);
  const absl::Status status = Verify(program);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

void Erase(StepProgram& program, int32_t op) { program.ops.erase(program.ops.begin() + op); }

INSTANTIATE_TEST_SUITE_P(
    All, VerifyBrokenTest,
    testing::Values(
        Broken{"ReadBeforeFill", "expects weights of block 2 but finds nothing written",
               Order::kDerive, [](StepProgram& p) { Erase(p, FindOp<FetchWeights>(p, 2)); }},
        Broken{"WrongBlockInSlot", "expects weights of block 1 but finds weights of block 2",
               Order::kDerive,
               [](StepProgram& p) { OpBodyOf<FetchWeights>(p, 1).block = BlockId{2}; }},
        Broken{"WrongMicroBatch", "micro-batch 1 but finds", Order::kDerive,
               [](StepProgram& p) {
                 OpBodyOf<ForwardBlock>(p, 1).in = OpBodyOf<ForwardBlock>(p, 0).in;
               }},
        Broken{"OverwriteWhileInUse", "no order between", Order::kKeep,
               // The fetch that refills a slot no longer waits for the slot's last reader.
               [](StepProgram& p) { p.ops[FindOp<FetchWeights>(p, 3)].after.clear(); }},
        Broken{"MissingOrderAcrossLanes", "no order between", Order::kKeep,
               [](StepProgram& p) { p.ops[FindOp<ForwardBlock>(p, 0)].after.clear(); }},
        Broken{"UpdateBeforeClip", "no order between", Order::kKeep,
               [](StepProgram& p) {
                 p.ops[FindOp<UpdateHost>(p, 0)].lane = Lane::kCopyOut;
                 p.ops[FindOp<UpdateHost>(p, 0)].after.clear();
               }},
        Broken{"OverBudget", "outside the budget", Order::kKeep,
               [](StepProgram& p) { p.arena_bytes = p.buffers.back().offset; }},
        Broken{"NegativeOffset", "outside the budget", Order::kKeep,
               [](StepProgram& p) { p.buffers[0].offset = -1; }},
        Broken{"OverflowingBuffer", "outside the budget", Order::kKeep,
               [](StepProgram& p) { p.buffers[1].bytes = INT64_MAX; }},
        Broken{"UnknownBuffer", "not there", Order::kKeep,
               [](StepProgram& p) { OpBodyOf<ForwardBlock>(p).out = BufferId{9999}; }},
        Broken{"UnknownBlock", "not there", Order::kKeep,
               [](StepProgram& p) { OpBodyOf<UpdateHost>(p).block = BlockId{99}; }},
        Broken{"UnknownMicroBatch", "not there", Order::kKeep,
               [](StepProgram& p) { OpBodyOf<EmbedForward>(p).micro_batch = 2; }},
        Broken{"WaitsForALaterOp", "not before it", Order::kKeep,
               [](StepProgram& p) { p.ops[0].after.push_back(OpId{5}); }},
        Broken{"WaitsForItself", "not before it", Order::kKeep,
               [](StepProgram& p) { p.ops[3].after.push_back(OpId{3}); }},
        Broken{"GradientsIncomplete", "over 2 terms but finds gradient sums of block 3 over 1",
               Order::kDerive, [](StepProgram& p) { Erase(p, FindOp<BackwardBlock>(p, 1)); }},
        Broken{"GradientsOverwritten", "over 2 terms but finds", Order::kDerive,
               [](StepProgram& p) {
                 OpBodyOf<BackwardBlock>(p, 1).accumulate = Accumulate::kOverwrite;
               }},
        Broken{"NormLeftOut", "finds nothing written", Order::kDerive,
               [](StepProgram& p) { Erase(p, FindOp<ReduceNorm>(p, 1)); }},
        Broken{"UpdateWithoutGradients", "finds nothing written", Order::kDerive,
               [](StepProgram& p) { Erase(p, FindOp<StoreGradients>(p, 2)); }},
        Broken{"UpdateWithoutClip", "finds nothing written", Order::kDerive,
               [](StepProgram& p) { Erase(p, FindOp<ClipScale>(p)); }},
        Broken{"UpdatedTwice", "second update", Order::kDerive,
               [](StepProgram& p) { p.ops.push_back(p.ops.back()); }},
        Broken{"FetchedBeforeAndAfterUpdate", "before and after their update", Order::kDerive,
               [](StepProgram& p) { p.ops.push_back(p.ops[FindOp<FetchWeights>(p, 0)]); }},
        Broken{"SavedTensorsLost", "micro-batch 0 but finds MLP tensors of block 3 micro-batch 1",
               Order::kDerive,
               // Both micro-batches leave their MLP tensors in one buffer.
               [](StepProgram& p) {
                 for (int i : {0, 1}) {
                   const BufferId shared = OpBodyOf<BackwardBlock>(p, 0).mlp;
                   OpBodyOf<BackwardBlock>(p, i).mlp = shared;
                   OpBodyOf<ForwardBlock>(p, 5 - i).mlp = shared;
                 }
               }},
        Broken{"OverlappingBuffers", "but finds nothing written", Order::kDerive,
               // Two slots share bytes: filling one destroys the other.
               [](StepProgram& p) {
                 Buffer& slot1 = p.buffers[Index(OpBodyOf<FetchWeights>(p, 2).weights)];
                 const Buffer& slot0 = p.buffers[Index(OpBodyOf<FetchWeights>(p, 1).weights)];
                 slot1.offset = slot0.offset;
               }}),
    [](const auto& info) { return info.param.name; });

// Blocks 0 to 4: five updates of weights, then those of moments of blocks 4 to 0.
TEST(VerifyTest, MomentsFollowTheirWeightsWithTheSameGradients) {
  const StepProgram program =
      Build({.update_time = UpdateTime::kNextStepMomentsLater}, HeadWeights::kSeparate);
  const auto message = [&](const std::function<void(StepProgram&)>& mutate) {
    StepProgram broken = program;
    mutate(broken);
    DeriveOrder(broken);
    return std::string(Verify(broken).message());
  };
  const int32_t last_moments = FindOp<UpdateHost>(program, 9);
  ASSERT_THAT(OpText(program, OpId{last_moments}), HasSubstr("update_host block=0 part=moments"));
  EXPECT_THAT(message([&](StepProgram& p) {
                Erase(p, FindOp<StoreGradients>(p, 4));
                Erase(p, last_moments);
              }),
              HasSubstr("the weights of block 0 and not its moments"));
  EXPECT_THAT(message([](StepProgram& p) { Erase(p, FindOp<UpdateHost>(p, 0)); }),
              HasSubstr("moments updated without their weights"));
  EXPECT_THAT(message([&](StepProgram& p) { p.ops.push_back(p.ops[last_moments]); }),
              HasSubstr("moments updated without their weights"));
  EXPECT_THAT(message([&](StepProgram& p) {
                p.ops.push_back(p.ops[last_moments]);
                Erase(p, last_moments);
              }),
              HasSubstr("gradients written over those with which moments are still"));
  EXPECT_THAT(message([](StepProgram& p) {
                OpBodyOf<UpdateHost>(p, 0).gradients = OpBodyOf<StoreGradients>(p, 0).gradients;
              }),
              HasSubstr("not there"));
}

TEST(VerifyTest, AcceptsWhatThePlannerWrites) {
  for (HeadWeights head : {HeadWeights::kSeparate, HeadWeights::kTiedToEmbedding}) {
    for (SaveLevel level : {SaveLevel::kAll, SaveLevel::kAttention, SaveLevel::kInput}) {
      EXPECT_TRUE(Verify(Program(head, level)).ok());
    }
  }
}

// No entry of any `after` is idle: without it Verify refuses. So DeriveOrder adds no order that
// hazards don't ask for.
TEST(VerifyTest, EveryDerivedDependencyIsNeeded) {
  const StepProgram program = Program(HeadWeights::kTiedToEmbedding, SaveLevel::kAttention);
  int checked = 0;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    for (size_t j = 0; j < program.ops[i].after.size(); ++j) {
      StepProgram without = program;
      auto& after = without.ops[i].after;
      after.erase(after.begin() + static_cast<int64_t>(j));
      EXPECT_FALSE(Verify(without).ok()) << OpText(program, OpId{static_cast<int32_t>(i)});
      ++checked;
    }
  }
  EXPECT_GT(checked, 10);
}

}  // namespace
}  // namespace penstock
