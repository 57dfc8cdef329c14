// Programs of policies that keep things on the device, save on the host, go in rounds or update
// in the next step.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/units.h"
#include "engine/plan/hazards.h"
#include "engine/plan/train_program.h"
#include "engine/plan/verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/plan/plan_testing.h"
#include "tests/engine/plan/policies.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kLayers = 4;
constexpr ProgramShape kShape{.micro_batches = 4, .tokens_per_micro_batch = 8};

absl::StatusOr<StepProgram> Build(const Policy& policy, const ProgramShape& shape = kShape,
                                  HeadWeights head = HeadWeights::kSeparate) {
  const ModelSpec spec = TinySpec(kLayers, head);
  return BuildTrainProgram(spec, MakeLayout(spec), policy, shape);
}

template <typename T>
int Count(const StepProgram& program) {
  int count = 0;
  for (const Op& op : program.ops) count += std::holds_alternative<T>(op.body) ? 1 : 0;
  return count;
}

template <typename T>
int Count(const absl::StatusOr<StepProgram>& program) {
  EXPECT_TRUE(program.ok()) << program.status();
  return program.ok() ? Count<T>(*program) : -1;
}

TEST(PolicyProgramTest, EveryPolicyGivesAProgramThatVerifies) {
  for (GradientType type : {GradientType::kFloat32, GradientType::kBfloat16}) {
    for (HeadWeights head : {HeadWeights::kSeparate, HeadWeights::kTiedToEmbedding}) {
      for (const auto& [name, policy] : AllPoliciesFor(kLayers, type)) {
        const auto program = Build(policy, kShape, head);
        EXPECT_TRUE(program.ok()) << name << ": " << program.status();
      }
    }
  }
}

// Whatever shares its bytes: classes make up the arena but for alignment.
TEST(PolicyProgramTest, BytesByClassCountEachByteOnce) {
  StepProgram program;
  const auto add = [&](BufferClass buffer_class, int64_t offset, int64_t bytes) {
    program.buffers.push_back({"", buffer_class, offset, bytes, Arena::kDevice});
  };
  add(BufferClass::kGradient, 100, 100);
  add(BufferClass::kGradient, 300, 100);
  add(BufferClass::kState, 150, 200);   // from inside the one into the other
  add(BufferClass::kSaved, 0, 450);     // around all
  add(BufferClass::kScratch, 100, 50);  // inside
  add(BufferClass::kWeights, 450, 10);  // beside
  const std::map<BufferClass, int64_t> expected = {{BufferClass::kWeights, 10},
                                                   {BufferClass::kState, 100},
                                                   {BufferClass::kSaved, 150},
                                                   {BufferClass::kGradient, 200},
                                                   {BufferClass::kScratch, 0}};
  EXPECT_EQ(BytesByClass(program, Arena::kDevice), expected);
  for (const auto& [name, policy] : AllPoliciesFor(kLayers, GradientType::kBfloat16)) {
    const StepProgram made = *Build(policy);
    int64_t sum = 0;
    for (const auto& [buffer_class, bytes] : BytesByClass(made, Arena::kDevice)) sum += bytes;
    EXPECT_LE(sum, made.arena_bytes) << name;
    EXPECT_GE(sum, made.arena_bytes - 4096 * static_cast<int64_t>(made.buffers.size())) << name;
  }
}

TEST(PolicyProgramTest, EveryDerivedDependencyIsNeeded) {
  for (const auto& [name, policy] : AllPoliciesFor(kLayers, GradientType::kBfloat16)) {
    const StepProgram program = *Build(policy, kShape, HeadWeights::kTiedToEmbedding);
    for (size_t i = 0; i < program.ops.size(); ++i) {
      for (size_t j = 0; j < program.ops[i].after.size(); ++j) {
        StepProgram without = program;
        auto& after = without.ops[i].after;
        after.erase(after.begin() + static_cast<int64_t>(j));
        EXPECT_FALSE(Verify(without).ok())
            << name << ": " << OpText(program, OpId{static_cast<int32_t>(i)});
      }
    }
  }
}

// What one program of a policy holds, the others have at the same place, whatever their shape.
TEST(PolicyProgramTest, HeldBuffersHaveOnePlaceInAllPrograms) {
  const ModelSpec spec = TinySpec(kLayers, HeadWeights::kSeparate);
  const ModelLayout layout = MakeLayout(spec);
  for (const auto& [name, policy] : AllPoliciesFor(kLayers, GradientType::kBfloat16)) {
    std::map<std::pair<int32_t, HeldContent>, std::pair<int64_t, int64_t>> places;
    const auto check = [&](const absl::StatusOr<StepProgram>& program) {
      ASSERT_TRUE(program.ok()) << name << ": " << program.status();
      for (const auto* list : {&program->finds, &program->leaves}) {
        for (const Held& held : *list) {
          const Buffer& buffer = program->buffer(held.buffer);
          const auto [entry, fresh] =
              places.try_emplace({Index(held.block), held.content}, buffer.offset, buffer.bytes);
          EXPECT_EQ(entry->second, std::pair(buffer.offset, buffer.bytes)) << name;
        }
      }
    };
    ProgramShape tail = kShape;
    tail.micro_batches = 1;
    check(BuildLoadProgram(spec, layout, policy, kShape));
    check(BuildTrainProgram(spec, layout, policy, kShape));
    check(BuildTrainProgram(spec, layout, policy, tail));
    for (SettleGoal goal : {SettleGoal::kEvaluate, SettleGoal::kReadStore}) {
      check(BuildSettleProgram(spec, layout, policy, kShape, goal));
    }
    check(BuildEvaluationProgram(spec, layout, policy, tail));
  }
}

// What each program finds, the one before it left.
TEST(PolicyProgramTest, ProgramsChain) {
  const ModelSpec spec = TinySpec(kLayers, HeadWeights::kSeparate);
  const ModelLayout layout = MakeLayout(spec);
  for (const auto& [name, policy] : AllPoliciesFor(kLayers, GradientType::kBfloat16)) {
    SCOPED_TRACE(name);
    const auto leaves = [&](const StepProgram& before, const StepProgram& after) {
      // Without a step before it a training program finds no gradients and no moments that came for
      // them, and applies none.
      const bool trained = before.updates != Updates::kNone && before.micro_batches > 0;
      for (const Held& held : after.finds) {
        if (held.content == HeldContent::kGradients) continue;
        const bool visits = !policy.PlacementOf(Index(held.block)).state;
        if (held.content == HeldContent::kMoments && visits && !trained) continue;
        bool found = false;
        for (const Held& left : before.leaves) {
          found |= left.block == held.block && left.content == held.content;
        }
        EXPECT_TRUE(found) << Index(held.block);
      }
    };
    const StepProgram load = *BuildLoadProgram(spec, layout, policy, kShape);
    const StepProgram train = *BuildTrainProgram(spec, layout, policy, kShape);
    const StepProgram settle =
        *BuildSettleProgram(spec, layout, policy, kShape, SettleGoal::kEvaluate);
    const StepProgram evaluation = *BuildEvaluationProgram(spec, layout, policy, kShape);
    leaves(load, train);
    leaves(train, train);
    leaves(train, settle);
    leaves(settle, evaluation);
    leaves(evaluation, evaluation);
    leaves(settle, train);
  }
}

TEST(PolicyProgramTest, ResidentWeightsCrossTheLinkOnceAStep) {
  const Policy resident{.micro_batches_per_round = 1,
                        .placements = PlaceAll(kLayers, {.weights = true, .gradients = true})};
  EXPECT_EQ(Count<FetchWeights>(Build(resident)), kLayers + 2);
  EXPECT_EQ(Count<StoreGradients>(Build(resident)), kLayers + 2);
  Policy streamed = resident;
  streamed.placements = PlaceAll(kLayers, {.gradients = true});
  // Embedding and head once; each of 4 rounds 2 * 4 - 2 layers, and between rounds 2 stay.
  EXPECT_EQ(Count<FetchWeights>(Build(streamed)), 2 + 4 * (2 * kLayers - 2) - 3 * 2);
}

TEST(PolicyProgramTest, BlocksUpdatedOnTheDeviceCrossTheLinkNotAtAll) {
  const Policy policy{.placements = PlaceAll(kLayers, {.state = true})};
  EXPECT_EQ(Count<FetchWeights>(Build(policy)), 0);
  EXPECT_EQ(Count<StoreGradients>(Build(policy)), 0);
  EXPECT_EQ(Count<UpdateHost>(Build(policy)), 0);
  EXPECT_EQ(Count<UpdateDevice>(Build(policy)), kLayers + 2);
}

TEST(PolicyProgramTest, AnUpdateOfTheNextStepComesBeforeTheWeightsAreTaken) {
  const StepProgram program = *Build({.update_time = UpdateTime::kNextStep});
  EXPECT_EQ(program.updates, Updates::kPending);
  EXPECT_LT(FindOp<UpdateHost>(program), FindOp<FetchWeights>(program));
  // Layer by layer: the first layer's forward does not wait for the last layer's update.
  const Op& forward = program.ops[FindOp<FetchWeights>(program, 1)];
  ASSERT_EQ(forward.after.size(), 1u);
  EXPECT_EQ(Index(forward.after[0]), FindOp<UpdateHost>(program, 1));
}

TEST(PolicyProgramTest, MomentsLaterComeAfterAllWeightsAndFirstWhereBackwardBegins) {
  const StepProgram program = *Build({.update_time = UpdateTime::kNextStepMomentsLater});
  std::vector<std::pair<UpdatePart, int32_t>> updates, expected;
  for (const Op& op : program.ops) {
    if (const auto* update = std::get_if<UpdateHost>(&op.body)) {
      updates.emplace_back(update->part, Index(update->block));
    }
  }
  for (int32_t block = 0; block < kLayers + 2; ++block) {
    expected.emplace_back(UpdatePart::kWeights, block);
  }
  for (int32_t block = kLayers + 1; block >= 0; --block) {
    expected.emplace_back(UpdatePart::kMoments, block);
  }
  EXPECT_EQ(updates, expected);
  // Forward waits for weights alone, and new gradients for the moments.
  const Op& fetch = program.ops[FindOp<FetchWeights>(program, 1)];
  ASSERT_EQ(fetch.after.size(), 1u);
  EXPECT_EQ(Index(fetch.after[0]), FindOp<UpdateHost>(program, 1));
  const Op& store = program.ops[FindOp<StoreGradients>(program, 0)];
  EXPECT_THAT(store.after, testing::Contains(OpId{FindOp<UpdateHost>(program, kLayers + 2)}));
  // Where nothing else is to be done, they come together.
  const ModelSpec spec = TinySpec(kLayers, HeadWeights::kSeparate);
  EXPECT_EQ(Count<UpdateHost>(BuildSettleProgram(spec, MakeLayout(spec),
                                                 {.update_time = UpdateTime::kNextStepMomentsLater},
                                                 kShape, SettleGoal::kReadStore)),
            kLayers + 2);
}

// What another micro-batch of the first round saves lies in gradient sums, but for the first
// layer's.
TEST(PolicyProgramTest, AnotherMicroBatchInTheFirstRoundTakesLittleMemory) {
  Policy policy{.micro_batches_per_round = 1,
                .placements = PlaceAll(kLayers, {.weights = true, .gradients = true})};
  const int64_t plain = Build(policy)->arena_bytes;
  policy.micro_batches_in_first_round = 2;
  const StepProgram extra = *Build(policy);
  policy.micro_batches_per_round = 2;
  policy.micro_batches_in_first_round = 0;
  const int64_t two = Build(policy)->arena_bytes;
  EXPECT_LT((extra.arena_bytes - plain) * kLayers / 2, two - plain);
  // Two micro-batches are through a layer's forward before the next layer's begins.
  const auto& first = std::get<ForwardBlock>(extra.ops[FindOp<ForwardBlock>(extra, 0)].body);
  const auto& second = std::get<ForwardBlock>(extra.ops[FindOp<ForwardBlock>(extra, 1)].body);
  EXPECT_EQ(first.block, second.block);
  EXPECT_NE(first.micro_batch, second.micro_batch);
}

// Rounds save in the same memory, on the device and on the host: the larger of the two counts.
TEST(PolicyProgramTest, AFirstRoundOfItsOwnSavesWhereTheOthersDo) {
  for (SavePlace place : {SavePlace::kDevice, SavePlace::kHost}) {
    Policy policy{.saving = {SaveLevel::kAll, place}, .micro_batches_per_round = 2};
    const StepProgram plain = *Build(policy);
    policy.micro_batches_in_first_round = 2;
    const StepProgram same = *Build(policy);
    EXPECT_EQ(same.arena_bytes, plain.arena_bytes);
    EXPECT_EQ(same.host_arena_bytes, plain.host_arena_bytes);
    policy.first_savings = std::vector<Saving>(kLayers, {SaveLevel::kInput, SavePlace::kHost});
    const StepProgram inputs = *Build(policy);
    EXPECT_EQ(inputs.host_arena_bytes > plain.host_arena_bytes, place == SavePlace::kDevice);
    // All but the head's input, and the place through which inputs pass.
    policy.micro_batches_in_first_round = 3;
    EXPECT_LT(Build(policy)->arena_bytes, inputs.arena_bytes * 3 / 2);
  }
}

TEST(PolicyProgramTest, SavingOnTheHostTakesLessOfTheDevice) {
  const auto device = Build({.saving = {SaveLevel::kAll, SavePlace::kDevice}});
  const auto host = Build({.saving = {SaveLevel::kAll, SavePlace::kHost}});
  ASSERT_TRUE(device.ok() && host.ok());
  EXPECT_LT(host->arena_bytes, device->arena_bytes);
  EXPECT_EQ(device->host_arena_bytes, 0);
  EXPECT_GT(host->host_arena_bytes, 0);
  EXPECT_EQ(Count<StoreSaved>(host), 3 * kLayers * 4);
  EXPECT_EQ(Count<FetchSaved>(host), 3 * kLayers * 4);
}

// So that the next two visits' tensors can leave or arrive meanwhile, whatever the micro-batches.
TEST(PolicyProgramTest, TensorsSavedOnTheHostPassThroughThreePlacesInTurnBothWays) {
  for (int32_t micro_batches = 1; micro_batches <= 5; ++micro_batches) {
    SCOPED_TRACE(micro_batches);
    const auto program = Build({.saving = {SaveLevel::kAttention, SavePlace::kHost}},
                               {.micro_batches = micro_batches, .tokens_per_micro_batch = 8});
    ASSERT_TRUE(program.ok()) << program.status();
    std::vector<BufferId> forward, backward;
    for (const Op& op : program->ops) {
      if (const auto* visit = std::get_if<ForwardBlock>(&op.body)) {
        forward.push_back(visit->attention);
      } else if (const auto* visit = std::get_if<BackwardBlock>(&op.body)) {
        backward.push_back(visit->attention);
      }
    }
    ASSERT_EQ(std::ssize(forward), kLayers * micro_batches);
    ASSERT_EQ(forward.size(), backward.size());
    for (const std::vector<BufferId>& places : {forward, backward}) {
      for (size_t i = 2; i < places.size(); ++i) {
        EXPECT_EQ(std::set(places.begin() + i - 2, places.begin() + i + 1).size(), 3u) << i;
      }
    }
  }
}

TEST(PolicyProgramTest, SettleAndLoadHaveNothingToDoWhereAllStreams) {
  const ModelSpec spec = TinySpec(kLayers, HeadWeights::kSeparate);
  const ModelLayout layout = MakeLayout(spec);
  EXPECT_TRUE(BuildLoadProgram(spec, layout, {}, kShape)->ops.empty());
  EXPECT_TRUE(BuildSettleProgram(spec, layout, {}, kShape, SettleGoal::kReadStore)->ops.empty());
  const Policy deferred{.update_time = UpdateTime::kNextStep};
  EXPECT_EQ(
      Count<UpdateHost>(BuildSettleProgram(spec, layout, deferred, kShape, SettleGoal::kEvaluate)),
      kLayers + 2);
}

TEST(PolicyProgramTest, RefusesPoliciesThatContradictThemselves) {
  const auto refused = [](const Policy& policy, const char* text) {
    const absl::Status status = Build(policy).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  refused({.placements = {BlockPlacement{}}}, "places 1 blocks");
  refused({.moment_type = MomentType::kBfloat16, .update_time = UpdateTime::kNextStepMomentsLater},
          "updates moments later, and keeps them in bfloat16");
  refused({.savings = {Saving{}}}, "saves 1 layers");
  refused({.decoder_slots = 0}, "must be positive");
  refused({.mlp_chunk_rows = -1}, "must be positive");
  Policy small{.moment_type = MomentType::kBfloat16,
               .placements = PlaceAll(kLayers, {.weights = true, .gradients = true})};
  EXPECT_TRUE(Build(small).ok());
  small.placements.back().state = true;
  refused(small, "moments in bfloat16");
  Policy master = MasterPoliciesFor(kLayers, {}).front().policy;
  EXPECT_TRUE(Build(master).ok());
  master.placements[2].master = master.placements[3].master = true;
  refused(master, "too little room for their moments");
  Policy rounds = master;
  rounds.micro_batches_per_round = 1;
  rounds.placements[0].gradients = false;
  refused(rounds, "one round or the gradients of all blocks");
  master.update_time = UpdateTime::kNextStep;
  refused(master, "updated later");
}

// The host has nothing to do before the block's weights are there, and its moments come when the
// last of the gradients whose place they take have left.
TEST(PolicyProgramTest, MomentsVisitBlocksWhoseMasterWeightsAreOnTheDevice) {
  const Policy policy = MasterPoliciesFor(kLayers, {}).front().policy;
  const StepProgram program = *Build(policy);
  EXPECT_EQ(Count<UpdateDevice>(Build(policy)), 1);
  EXPECT_EQ(Count<UpdateHost>(Build(policy)), 2 * (kLayers + 1) + 1);
  EXPECT_EQ(Count<StoreGradients>(Build(policy)), kLayers + 2);
  EXPECT_EQ(Count<FetchWeights>(Build(policy)), kLayers + 1);
  const int32_t fetch = FindOp<FetchMoments>(program);
  const Op& op = program.ops[fetch];
  EXPECT_EQ(std::get<FetchMoments>(op.body).block, BlockId{1});
  bool after_store = false;
  for (OpId after : op.after) {
    after_store |= std::holds_alternative<StoreGradients>(program.ops[Index(after)].body);
  }
  EXPECT_TRUE(after_store);
  const auto message = [&](const std::function<void(StepProgram&)>& mutate) {
    StepProgram broken = program;
    mutate(broken);
    DeriveOrder(broken);
    return std::string(Verify(broken).message());
  };
  EXPECT_THAT(message([&](StepProgram& p) { p.ops.erase(p.ops.begin() + fetch); }),
              HasSubstr("it should leave moments of block 1"));
  EXPECT_THAT(message([&](StepProgram& p) {
                std::erase_if(p.ops, [](const Op& op) {
                  const auto* update = std::get_if<UpdateHost>(&op.body);
                  return update != nullptr && update->block == BlockId{1};
                });
              }),
              HasSubstr("moments fetched before their update"));
  EXPECT_THAT(message([&](StepProgram& p) {
                const Op moved = p.ops[fetch];
                p.ops.erase(p.ops.begin() + fetch);
                p.ops.insert(p.ops.begin() + FindOp<UpdateDevice>(p) + 1, moved);
              }),
              HasSubstr("moments fetched before their update"));
  EXPECT_THAT(
      message([&](StepProgram& p) { OpBodyOf<UpdateDevice>(p, 0).part = UpdatePart::kMoments; }),
      HasSubstr("not there"));
}

// Of a streamed model: the place is where the last layers saved, and weights for which a slot
// becomes free at the same time come first.
TEST(PolicyProgramTest, MomentsComeWhereTheLastLayersSaved) {
  Policy policy{.update_time = UpdateTime::kNextStepMomentsLater,
                .placements = PlaceAll(kLayers, {})};
  policy.placements[1].master = true;
  const StepProgram program = *Build(policy);
  const int32_t fetch = FindOp<FetchMoments>(program);
  const Buffer& moments = program.buffer(std::get<FetchMoments>(program.ops[fetch].body).moments);
  int64_t saved = 0;
  for (const Buffer& buffer : program.buffers) {
    const bool last = buffer.name.starts_with(absl::StrCat("mlp", kLayers)) ||
                      buffer.name.starts_with(absl::StrCat("attention", kLayers));
    saved += last && buffer.offset < moments.offset + moments.bytes ? 1 : 0;
  }
  EXPECT_GT(saved, 0);
  // Backward of the last layer frees the place; layers 2 and 1 are fetched then.
  EXPECT_LT(FindOp<FetchWeights>(program, kLayers + 2), fetch);
  // All that the state would take but the moments.
  Policy state = policy;
  state.placements[1].state = true;
  EXPECT_LE(program.arena_bytes, Build(state)->arena_bytes - moments.bytes + 4096);
}

// Copies of a lane keep their order, so none waits for what the host does later than its own.
TEST(PolicyProgramTest, MomentsComeInTheOrderInWhichTheHostUpdatesThem) {
  constexpr int64_t kEight = 8;  // whose gradients have room for the moments of two
  const ModelSpec spec = TinySpec(kEight, HeadWeights::kSeparate);
  const BlockPlacement stays = {.weights = true, .gradients = true};
  for (const BlockPlacement& placement : {BlockPlacement{}, stays}) {
    Policy policy{.update_time = UpdateTime::kNextStepMomentsLater,
                  .placements = PlaceAll(kEight, placement)};
    policy.placements[1].master = policy.placements[2].master = true;
    const auto program = BuildTrainProgram(spec, MakeLayout(spec), policy, kShape);
    ASSERT_TRUE(program.ok()) << program.status();
    std::vector<BlockId> come, updated;
    for (const Op& op : program->ops) {
      if (const auto* fetch = std::get_if<FetchMoments>(&op.body)) come.push_back(fetch->block);
      const auto* update = std::get_if<UpdateHost>(&op.body);
      if (update != nullptr && policy.PlacementOf(Index(update->block)).master) {
        updated.push_back(update->block);
      }
    }
    EXPECT_EQ(come.size(), 2u);
    EXPECT_EQ(come, updated);
  }
}

// Broken in ways that only such programs can be.
TEST(PolicyProgramTest, VerifyRefusesWhatIsNotHeld) {
  const Policy policy{.gradient_type = GradientType::kBfloat16,
                      .update_time = UpdateTime::kNextStep,
                      .placements = PlaceAll(kLayers, {.state = true})};
  const StepProgram good = *Build(policy);
  const auto refused = [&](const char* text, auto mutate) {
    StepProgram program = good;
    mutate(program);
    DeriveOrder(program);
    EXPECT_THAT(std::string(Verify(program).message()), HasSubstr(text));
  };
  refused("expects correction plane of block 0 but finds nothing written",
          [](StepProgram& p) { p.finds.erase(p.finds.begin()); });
  refused("update in a program without updates",
          [](StepProgram& p) { p.updates = Updates::kNone; });
  refused("expects bf16 gradients of block 1 but finds bf16 gradients of block 2",
          [](StepProgram& p) {
            OpBodyOf<UpdateDevice>(p, 1).gradients = OpBodyOf<UpdateDevice>(p, 2).gradients;
          });
  refused("it should leave bf16 gradients of block 0", [](StepProgram& p) {
    p.ops.erase(p.ops.begin() + FindOp<RoundGradients>(p, kLayers + 1));
    std::erase_if(p.ops, [](const Op& op) {
      const auto* norm = std::get_if<ReduceNorm>(&op.body);
      return norm != nullptr && norm->block == BlockId{0};
    });
    std::erase_if(p.ops, [](const Op& op) { return std::holds_alternative<ClipScale>(op.body); });
    // The gradients that it found must not pass for its own.
    std::erase_if(p.finds, [](const Held& held) {
      return held.content == HeldContent::kGradients && held.block == BlockId{0};
    });
    std::erase_if(p.ops, [](const Op& op) {
      const auto* update = std::get_if<UpdateDevice>(&op.body);
      return update != nullptr && update->block == BlockId{0};
    });
  });
  refused("used before and after their update", [](StepProgram& p) {
    const int32_t update = FindOp<UpdateDevice>(p, 2);
    const Op op = p.ops[update];
    p.ops.erase(p.ops.begin() + update);
    p.ops.insert(p.ops.begin() + FindOp<BackwardBlock>(p), op);
  });
}

TEST(PolicyProgramTest, UpdatesWithBackwardTakeGradientsFromTwoPlacesOnTheHost) {
  const ModelSpec spec = TinySpec(kLayers, HeadWeights::kSeparate);
  const ModelLayout layout = MakeLayout(spec);
  const StepProgram program =
      *Build({.gradient_type = GradientType::kBfloat16, .update_time = UpdateTime::kWithBackward});
  EXPECT_EQ(program.updates, Updates::kThisStep);
  const int64_t ends = std::max(layout.blocks.front().size, layout.blocks.back().size) * 2;
  const int64_t layer = RoundUp(layout.max_decoder_block_size * 2, 4096);
  EXPECT_EQ(program.host_arena_bytes, std::max(2 * layer, RoundUp(ends, 4096)));
  // Every block is updated once, and all but the last before backward is through.
  int64_t updates = 0;
  const int32_t last = FindOp<EmbedBackward>(program, kShape.micro_batches - 1);
  for (int32_t i = 0; i < last; ++i) {
    updates += std::holds_alternative<UpdateHost>(program.ops[i].body) ? 1 : 0;
  }
  EXPECT_EQ(updates, kLayers + 1);
  EXPECT_EQ(Count<UpdateHost>(program), kLayers + 2);
}

TEST(PolicyProgramTest, UpdatesWithBackwardContradictStateAndSumsElsewhere) {
  const Policy state{.update_time = UpdateTime::kWithBackward,
                     .placements = PlaceAll(kLayers, {.state = true})};
  EXPECT_THAT(std::string(Build(state).status().message()), HasSubstr("state on the device"));
  const Policy sums{.micro_batches_per_round = 1, .update_time = UpdateTime::kWithBackward};
  EXPECT_THAT(std::string(Build(sums).status().message()), HasSubstr("wait on the host"));
}

}  // namespace
}  // namespace penstock
