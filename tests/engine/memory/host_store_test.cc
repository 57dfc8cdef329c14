#include "engine/memory/host_store.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace penstock {
namespace {

ModelLayout LayoutOf(const std::vector<int64_t>& sizes) {
  ModelLayout layout;
  for (size_t i = 0; i < sizes.size(); ++i) {
    BlockLayout& block = layout.blocks.emplace_back();
    block.block = BlockId{static_cast<int32_t>(i)};
    block.size = sizes[i];
  }
  return layout;
}

// First and last byte after it.
template <typename Element>
std::pair<uintptr_t, uintptr_t> Extent(std::span<Element> plane) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(plane.data());
  return {begin, begin + plane.size_bytes()};
}

void ExpectApartAndInside(const HostStore& store, const ModelLayout& layout) {
  std::vector<std::pair<uintptr_t, uintptr_t>> extents;
  for (const BlockLayout& block : layout.blocks) {
    const BlockStore& planes = store.block(block.block);
    for (const auto& extent :
         {Extent(planes.hi), Extent(planes.lo), Extent(planes.m), Extent(planes.v),
          Extent(planes.gradient), Extent(planes.gradient_bf16)}) {
      if (extent.first != extent.second) extents.push_back(extent);
    }
  }
  std::sort(extents.begin(), extents.end());
  const auto [begin, end] = Extent(store.memory());
  uintptr_t free = begin;
  for (const auto& [first, last] : extents) {
    EXPECT_GE(first, free);
    EXPECT_EQ(first % 64, 0u);
    free = last;
  }
  EXPECT_LE(free, end);
}

TEST(HostStoreTest, PlanesAreApartOnLinesAndAsLargeAsAsked) {
  const ModelLayout layout = LayoutOf({64, 192, 1000064});
  for (const GradientPlane gradient :
       {GradientPlane::kNone, GradientPlane::kFloat32, GradientPlane::kBfloat16}) {
    for (const OptimizerState state : {OptimizerState::kNone, OptimizerState::kFloat32}) {
      const auto store = HostStore::Create(layout, state, gradient);
      ASSERT_TRUE(store.ok()) << store.status();
      EXPECT_EQ((*store)->bytes(), HostStore::BytesNeeded(layout, state, gradient));
      for (const BlockLayout& block : layout.blocks) {
        const BlockStore& planes = (*store)->block(block.block);
        const size_t size = block.size;
        EXPECT_EQ(planes.hi.size(), size);
        EXPECT_EQ(planes.lo.size(), size);
        EXPECT_EQ(planes.m.size(), state == OptimizerState::kFloat32 ? size : 0);
        EXPECT_EQ(planes.v.size(), state == OptimizerState::kFloat32 ? size : 0);
        EXPECT_EQ(planes.gradient.size(), gradient == GradientPlane::kFloat32 ? size : 0);
        EXPECT_EQ(planes.gradient_bf16.size(), gradient == GradientPlane::kBfloat16 ? size : 0);
      }
      ExpectApartAndInside(**store, layout);
    }
  }
}

TEST(HostStoreTest, BytesPerParameterAreThosePromised) {
  const ModelLayout layout = LayoutOf({1 << 20, 1 << 20});
  const auto per_parameter = [&](GradientPlane gradient) {
    return static_cast<double>(HostStore::BytesNeeded(layout, OptimizerState::kFloat32, gradient)) /
           (2 << 20);
  };
  EXPECT_EQ(per_parameter(GradientPlane::kNone), 12);
  EXPECT_EQ(per_parameter(GradientPlane::kBfloat16), 14);
  EXPECT_EQ(per_parameter(GradientPlane::kFloat32), 16);
}

}  // namespace
}  // namespace penstock
