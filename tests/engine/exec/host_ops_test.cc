#include "engine/exec/host_ops.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/memory/planes.h"
#include "engine/plan/device_state.h"
#include "gtest/gtest.h"

namespace penstock {
namespace {

constexpr int64_t kBlockSize = 192;

// A block of two parameters with a gap between them; only the first decays.
ModelLayout Layout() {
  ModelLayout layout;
  BlockLayout& block = layout.blocks.emplace_back();
  block.block = BlockId{0};
  block.size = kBlockSize;
  Parameter& matrix = block.parameters.emplace_back();
  matrix.size = 100;
  matrix.decay = Decay::kApply;
  Parameter& norm = block.parameters.emplace_back();
  norm.offset = 128;
  norm.size = 60;
  norm.decay = Decay::kNone;
  return layout;
}

// Gradients that bf16 has, in the plane that the store has.
std::unique_ptr<HostStore> StoreWith(GradientPlane plane, MomentType type = MomentType::kFloat32) {
  auto store = *HostStore::Create(Layout(), StateOf(type), plane);
  BlockStore& block = store->block(BlockId{0});
  for (int64_t i = 0; i < kBlockSize; ++i) {
    const SplitValue w = Split(0.01f * static_cast<float>(i - 90));
    block.hi[i] = w.hi;
    block.lo[i] = w.lo;
    const bf16 gradient = ToBf16(0.3f * static_cast<float>(i % 13 - 6));
    if (!block.gradient.empty()) block.gradient[i] = ToFloat(gradient);
    if (!block.gradient_bf16.empty()) block.gradient_bf16[i] = gradient;
  }
  return store;
}

bool SameBits(const HostStore& left, const HostStore& right) {
  const BlockStore& a = left.block(BlockId{0});
  const BlockStore& b = right.block(BlockId{0});
  const auto same = [](auto x, auto y) {
    return x.size() == y.size() &&
           (x.empty() || std::memcmp(x.data(), y.data(), x.size_bytes()) == 0);
  };
  return same(a.hi, b.hi) && same(a.lo, b.lo) && same(a.m, b.m) && same(a.v, b.v) &&
         same(a.small_m.values, b.small_m.values) && same(a.small_v.values, b.small_v.values) &&
         same(a.small_m.scales, b.small_m.scales) && same(a.small_v.scales, b.small_v.scales);
}

TEST(UpdateBlockTest, EitherGradientPlaneGivesTheSameBits) {
  ThreadPool pool(2);
  const OptimizerStep optimizer{
      .learning_rate = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  StepUpdates updates;
  StepProgram program;
  program.updates = Updates::kThisStep;
  ASSERT_TRUE(updates.Begin(program).ok());
  updates.Decide({.outcome = StepOutcome::kApplied, .clip_scale = 0.37}, optimizer);
  for (const MomentType type : kMomentTypes) {
    SCOPED_TRACE(MomentTypeName(type));
    const auto floats = StoreWith(GradientPlane::kFloat32, type);
    const auto halves = StoreWith(GradientPlane::kBfloat16, type);
    const auto before = StoreWith(GradientPlane::kNone, type);
    for (HostStore* store : {floats.get(), halves.get()}) {
      const absl::Status status =
          UpdateBlock(cpu::Context{&pool}, *store, BlockId{0}, UpdatePart::kAll, updates);
      ASSERT_TRUE(status.ok()) << status;
    }
    EXPECT_TRUE(SameBits(*floats, *halves));
    EXPECT_FALSE(SameBits(*floats, *before));
    const BlockStore& block = halves->block(BlockId{0});
    for (const int64_t gap : {100, 127, 188, 191}) {
      if (type == MomentType::kFloat32) {
        EXPECT_EQ(block.m[gap], 0) << gap;
      } else {
        const int64_t at = gap * MomentElementBytes(type);
        EXPECT_EQ(block.small_m.values[at], std::byte{0}) << gap;
        EXPECT_EQ(block.small_v.values[at], std::byte{0}) << gap;
      }
    }
    // The second parameter's scales come after the first's.
    for (const float scale : block.small_m.scales) EXPECT_GT(scale, 0);
  }
}

// Gradients that pass through a buffer, and other seeds and updates.
TEST(UpdateBlockTest, SmallMomentsRoundByRunUpdateAndElementAlone) {
  ThreadPool one(1), three(3);
  StepProgram program;
  program.updates = Updates::kThisStep;
  const auto updated = [&](ThreadPool& pool, MomentType type, uint64_t seed, int64_t applied) {
    StepUpdates updates;
    EXPECT_TRUE(updates.Begin(program).ok());
    updates.Decide({.outcome = StepOutcome::kApplied}, {.learning_rate = 1e-2,
                                                        .beta1 = 0.9,
                                                        .beta2 = 0.95,
                                                        .epsilon = 1e-8,
                                                        .rounding_seed = seed});
    auto store = StoreWith(GradientPlane::kBfloat16, type);
    store->updates_applied = applied;
    const auto* gradients =
        reinterpret_cast<const std::byte*>(store->block(BlockId{0}).gradient_bf16.data());
    EXPECT_TRUE(UpdateBlockFrom(cpu::Context{&pool}, *store, BlockId{0}, gradients,
                                GradientType::kBfloat16, 1, updates)
                    .ok());
    return store;
  };
  const auto moments_of = [](const HostStore& store) {
    const std::span<const std::byte> m = store.block(BlockId{0}).small_m.values;
    return std::vector<std::byte>(m.begin(), m.end());
  };
  for (const MomentType type : {MomentType::kBfloat16, MomentType::kInt8Blocks}) {
    const auto first = updated(one, type, 5, 10);
    EXPECT_TRUE(SameBits(*first, *updated(three, type, 5, 10)));
    EXPECT_NE(moments_of(*first), moments_of(*updated(one, type, 6, 10)));
    EXPECT_NE(moments_of(*first), moments_of(*updated(one, type, 5, 11)));
  }
}

// Blocks above it have been updated: the step cannot be skipped, and the store is of no one step.
TEST(UpdateBlockTest, GradientsFromABufferMustBeFinite) {
  ThreadPool pool(1);
  const OptimizerStep optimizer{
      .learning_rate = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  const auto planes = StoreWith(GradientPlane::kBfloat16);
  const auto* gradients =
      reinterpret_cast<const std::byte*>(planes->block(BlockId{0}).gradient_bf16.data());
  StepUpdates updates;
  StepProgram program;
  program.updates = Updates::kThisStep;
  ASSERT_TRUE(updates.Begin(program).ok());
  const auto update = [&](HostStore& store, double sum_of_squares) {
    return UpdateBlockFrom(cpu::Context{&pool}, store, BlockId{0}, gradients,
                           GradientType::kBfloat16, sum_of_squares, updates);
  };
  const auto store = StoreWith(GradientPlane::kNone);
  const auto before = StoreWith(GradientPlane::kNone);
  updates.Decide({.outcome = StepOutcome::kApplied}, optimizer);
  for (double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    const absl::Status status = update(*store, bad);
    EXPECT_EQ(ReasonOf(status), reason::kNonFinite);
    EXPECT_NE(std::string(status.message()).find("gradient of block 0"), std::string::npos);
    EXPECT_TRUE(SameBits(*store, *before));
  }
  EXPECT_TRUE(update(*store, 1).ok());
  EXPECT_TRUE(
      UpdateBlock(cpu::Context{&pool}, *planes, BlockId{0}, UpdatePart::kAll, updates).ok());
  EXPECT_TRUE(SameBits(*store, *planes));
  EXPECT_TRUE(store->updating);
}

TEST(CheckProgramTest, StateOnTheDeviceWantsMomentsInFloat32) {
  StepProgram program;
  program.num_blocks = 1;
  program.buffers = {
      {"weights", BufferClass::kWeights, 0, 2 * kBlockSize, Arena::kDevice},
      {"moments", BufferClass::kState, 4096, DeviceMomentsBytes(kBlockSize), Arena::kDevice}};
  program.arena_bytes = 8192;
  program.ops.push_back({Lane::kCopyIn, {}, FetchMoments{BlockId{0}, BufferId{1}}});
  program.leaves = {{BufferId{1}, BlockId{0}, HeldContent::kMoments}};
  const auto check = [&](MomentType type) {
    return CheckProgram(program, 8192, 0, *StoreWith(GradientPlane::kNone, type));
  };
  EXPECT_TRUE(check(MomentType::kFloat32).ok()) << check(MomentType::kFloat32);
  EXPECT_NE(std::string(check(MomentType::kInt8Blocks).message()).find("int8_blocks"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock
