#include "engine/memory/host_store.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace penstock {
namespace {

template <typename Element>
bool Resident(std::span<Element> plane) {
  const uintptr_t page = sysconf(_SC_PAGESIZE);
  const uintptr_t begin = reinterpret_cast<uintptr_t>(plane.data()) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(plane.data()) + plane.size_bytes();
  std::vector<unsigned char> pages((end - begin + page - 1) / page);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(begin), end - begin, pages.data()), 0);
  return std::all_of(pages.begin(), pages.end(), [](unsigned char bits) { return bits & 1; });
}

ModelLayout LayoutOf(const std::vector<int64_t>& sizes) {
  ModelLayout layout;
  for (size_t i = 0; i < sizes.size(); ++i) {
    BlockLayout& block = layout.blocks.emplace_back();
    block.block = BlockId{static_cast<int32_t>(i)};
    block.size = sizes[i];
    // Neighbours without a gap, and one at the end.
    block.parameters.resize(2);
    block.parameters[0].size = sizes[i] / 2 + 1;
    block.parameters[1].offset = block.parameters[0].size;
    block.parameters[1].size = sizes[i] / 2 - 20;
  }
  return layout;
}

// First and last byte after it.
template <typename Element>
std::pair<uintptr_t, uintptr_t> Extent(std::span<Element> plane) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(plane.data());
  return {begin, begin + plane.size_bytes()};
}

// The blocks' memory, one behind the other from a huge page on; returns its end.
uintptr_t ExpectHugePages(const HostStore& store) {
  uintptr_t end = Extent(store.block_memory().front()).first;
  for (const std::span<std::byte> memory : store.block_memory()) {
    EXPECT_EQ(Extent(memory).first, end);
    EXPECT_EQ(end % kHugePageBytes, 0u);
    end = Extent(memory).second;
  }
  EXPECT_EQ(end - Extent(store.block_memory().front()).first,
            static_cast<uintptr_t>(store.bytes()));
  return end;
}

void ExpectApartAndInside(const HostStore& store, const ModelLayout& layout) {
  std::vector<std::pair<uintptr_t, uintptr_t>> extents;
  for (const BlockLayout& block : layout.blocks) {
    const BlockStore& planes = store.block(block.block);
    for (const auto& extent :
         {Extent(planes.hi), Extent(planes.lo), Extent(planes.m), Extent(planes.v),
          Extent(planes.small_m.values), Extent(planes.small_m.scales),
          Extent(planes.small_v.values), Extent(planes.small_v.scales), Extent(planes.gradient),
          Extent(planes.gradient_bf16)}) {
      if (extent.first == extent.second) continue;
      extents.push_back(extent);
      const auto memory = Extent(store.block_memory()[Index(block.block)]);
      EXPECT_GE(extent.first, memory.first);
      EXPECT_LE(extent.second, memory.second);
    }
  }
  std::sort(extents.begin(), extents.end());
  const uintptr_t end = ExpectHugePages(store);
  uintptr_t free = Extent(store.block_memory().front()).first;
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
    for (const OptimizerState state : {OptimizerState::kNone, OptimizerState::kFloat32,
                                       OptimizerState::kBfloat16, OptimizerState::kInt8Blocks}) {
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
        const size_t width = state == OptimizerState::kBfloat16     ? 2
                             : state == OptimizerState::kInt8Blocks ? 1
                                                                    : 0;
        const size_t scales =
            width == 1 ? (size / 2 + 1 + 255) / 256 + (size / 2 - 20 + 255) / 256 : 0;
        for (const SmallMoment& moment : {planes.small_m, planes.small_v}) {
          EXPECT_EQ(moment.values.size(), width * size);
          EXPECT_EQ(moment.scales.size(), scales);
        }
        EXPECT_EQ(planes.gradient.size(), gradient == GradientPlane::kFloat32 ? size : 0);
        EXPECT_EQ(planes.gradient_bf16.size(), gradient == GradientPlane::kBfloat16 ? size : 0);
      }
      ExpectApartAndInside(**store, layout);
    }
  }
}

TEST(HostStoreTest, ScalesOfAParameterFollowThoseOfTheParametersBefore) {
  BlockLayout block;
  block.parameters.resize(3);
  for (const auto& [at, size] : {std::pair(0, 256), std::pair(1, 257), std::pair(2, 1)}) {
    block.parameters[at].size = size;
    block.parameters[at].offset = at == 0 ? 0 : at == 1 ? 256 : 576;
  }
  EXPECT_EQ(FirstScale(block, block.parameters[0]), 0);
  EXPECT_EQ(FirstScale(block, block.parameters[1]), 1);
  EXPECT_EQ(FirstScale(block, block.parameters[2]), 3);
}

TEST(HostStoreTest, TouchedPagesAreResidentAndAsTheyWere) {
  const ModelLayout layout = LayoutOf({1000064, 64});
  const auto store = *HostStore::Create(layout, OptimizerState::kFloat32, GradientPlane::kBfloat16);
  const auto small = *HostStore::Create(layout, OptimizerState::kBfloat16, GradientPlane::kNone);
  store->block(BlockId{0}).hi[999999] = 7;
  ThreadPool pool(3);
  store->TouchPages(pool);
  small->TouchPages(pool);
  EXPECT_TRUE(Resident(small->block(BlockId{0}).small_m.values) &&
              Resident(small->block(BlockId{0}).small_v.values));
  EXPECT_EQ(store->block(BlockId{0}).hi[999999], 7);
  for (const BlockLayout& block : layout.blocks) {
    const BlockStore& planes = store->block(block.block);
    EXPECT_TRUE(Resident(planes.hi) && Resident(planes.lo) && Resident(planes.m) &&
                Resident(planes.v) && Resident(planes.gradient_bf16));
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
