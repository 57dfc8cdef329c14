#include "engine/exec/host_ops.h"

#include <cstring>
#include <memory>

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
  const BlockStore& a = floats->block(BlockId{0});
  const BlockStore& b = halves->block(BlockId{0});
  const BlockStore& old = before->block(BlockId{0});
  EXPECT_EQ(std::memcmp(a.hi.data(), b.hi.data(), a.hi.size_bytes()), 0);
  EXPECT_EQ(std::memcmp(a.lo.data(), b.lo.data(), a.lo.size_bytes()), 0);
  EXPECT_EQ(std::memcmp(a.m.data(), b.m.data(), a.m.size_bytes()), 0);
  EXPECT_EQ(std::memcmp(a.v.data(), b.v.data(), a.v.size_bytes()), 0);
  EXPECT_NE(std::memcmp(a.lo.data(), old.lo.data(), a.lo.size_bytes()), 0);
  for (const int64_t gap : {100, 127, 188, 191}) EXPECT_EQ(b.m[gap], 0) << gap;
}

}  // namespace
}  // namespace penstock
