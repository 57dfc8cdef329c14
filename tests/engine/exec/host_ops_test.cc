#include "engine/exec/host_ops.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/memory/planes.h"
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
std::unique_ptr<HostStore> StoreWith(GradientPlane plane) {
  auto store = *HostStore::Create(Layout(), OptimizerState::kFloat32, plane);
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
  return std::memcmp(a.hi.data(), b.hi.data(), a.hi.size_bytes()) == 0 &&
         std::memcmp(a.lo.data(), b.lo.data(), a.lo.size_bytes()) == 0 &&
         std::memcmp(a.m.data(), b.m.data(), a.m.size_bytes()) == 0 &&
         std::memcmp(a.v.data(), b.v.data(), a.v.size_bytes()) == 0;
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
  const auto floats = StoreWith(GradientPlane::kFloat32);
  const auto halves = StoreWith(GradientPlane::kBfloat16);
  const auto before = StoreWith(GradientPlane::kNone);
  for (HostStore* store : {floats.get(), halves.get()}) {
    const absl::Status status = UpdateBlock(cpu::Context{&pool}, *store, BlockId{0}, updates);
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_TRUE(SameBits(*floats, *halves));
  EXPECT_FALSE(SameBits(*floats, *before));
  for (const int64_t gap : {100, 127, 188, 191})
    EXPECT_EQ(halves->block(BlockId{0}).m[gap], 0) << gap;
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
  EXPECT_TRUE(UpdateBlock(cpu::Context{&pool}, *planes, BlockId{0}, updates).ok());
  EXPECT_TRUE(SameBits(*store, *planes));
  EXPECT_TRUE(store->updating);
}

}  // namespace
}  // namespace penstock
