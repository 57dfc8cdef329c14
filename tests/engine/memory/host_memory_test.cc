#include "engine/memory/host_memory.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace penstock {
namespace {

TEST(HostMemoryTest, StartsOnAHugePageAndHoldsZeros) {
  for (const int64_t bytes :
       {int64_t{1}, int64_t{4096}, int64_t{5000}, kHugePageBytes, 3 * kHugePageBytes + 1}) {
    const auto memory = HostMemory::Allocate(bytes);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(memory->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % kHugePageBytes, 0u);
    EXPECT_EQ(std::count(memory->data(), memory->data() + bytes, std::byte{0}), bytes);
  }
}

TEST(HostMemoryTest, NothingIsEmpty) {
  const auto memory = HostMemory::Allocate(0);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->data(), nullptr);
}

TEST(HostMemoryTest, RefusesWhatNoMachineHas) {
  for (const int64_t bytes : {int64_t{-1}, int64_t{1} << 60, std::numeric_limits<int64_t>::max()}) {
    const auto memory = HostMemory::Allocate(bytes);
    EXPECT_EQ(memory.status().code(), absl::StatusCode::kResourceExhausted) << bytes;
  }
}

TEST(HostMemoryTest, TouchingChangesNoByte) {
  const auto memory = *HostMemory::Allocate(2 * kHugePageBytes + 4097);
  const std::span<std::byte> bytes(memory.data(), static_cast<size_t>(memory.bytes()));
  for (size_t i = 0; i < bytes.size(); i += 4096) bytes[i] = std::byte{42};
  ThreadPool pool(3);
  TouchPages(bytes, pool);
  TouchPages({}, pool);
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), std::byte{42}),
            static_cast<int64_t>(bytes.size() / 4096 + 1));
}

}  // namespace
}  // namespace penstock
