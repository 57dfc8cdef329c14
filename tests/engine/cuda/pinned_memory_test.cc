#include "engine/cuda/pinned_memory.h"

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace penstock::cuda {
namespace {

using ::testing::HasSubstr;

// A driver that keeps a list and may refuse.
class FakeDriver {
 public:
  PinnedRanges::Calls calls() {
    return {.lock =
                [this](std::byte* data, size_t bytes) {
                  std::lock_guard guard(mutex_);
                  sizes_asked.push_back(bytes);
                  if (bytes == refused_bytes) return refusal;
                  EXPECT_TRUE(locked.insert(data).second);
                  return cudaSuccess;
                },
            .unlock =
                [this](std::byte* data) {
                  std::lock_guard guard(mutex_);
                  EXPECT_EQ(locked.erase(data), 1u) << "unlocked, but not locked";
                }};
  }

  std::set<std::byte*> locked;
  std::vector<size_t> sizes_asked;
  size_t refused_bytes = 0;
  cudaError_t refusal = cudaErrorMemoryAllocation;

 private:
  std::mutex mutex_;
};

class PinnedRangesTest : public ::testing::Test {
 protected:
  // Of 1, 2, ... count bytes; nobody reads them.
  std::vector<std::span<std::byte>> Ranges(size_t count) {
    memory_.resize(count * count);
    std::vector<std::span<std::byte>> ranges;
    for (size_t i = 0; i < count; ++i) ranges.emplace_back(memory_.data() + i * count, i + 1);
    return ranges;
  }

  std::vector<std::byte> memory_;
  FakeDriver driver_;
  ThreadPool pool_{3};
};

TEST_F(PinnedRangesTest, LocksEveryRangeAsLongAsItLives) {
  {
    auto pinned = PinnedRanges::Register(Ranges(20), PageLock::kRequired, pool_, driver_.calls());
    ASSERT_TRUE(pinned.ok()) << pinned.status();
    EXPECT_EQ(driver_.locked.size(), 20u);
    PinnedRanges moved = *std::move(pinned);
    PinnedRanges assigned;
    assigned = std::move(moved);
    EXPECT_EQ(driver_.locked.size(), 20u);
  }
  EXPECT_TRUE(driver_.locked.empty());
}

TEST_F(PinnedRangesTest, LargestFirstAndEmptyOnesNotAtAll) {
  ThreadPool one(1);
  std::vector<std::span<std::byte>> ranges = Ranges(4);
  ranges.emplace_back();
  ASSERT_TRUE(PinnedRanges::Register(ranges, PageLock::kRequired, one, driver_.calls()).ok());
  EXPECT_EQ(driver_.sizes_asked, (std::vector<size_t>{4, 3, 2, 1}));
  EXPECT_TRUE(PinnedRanges::Register({{}}, PageLock::kRequired, one, driver_.calls()).ok());
}

TEST_F(PinnedRangesTest, ARefusalUnlocksTheRestAndNamesBytesAndLimit) {
  for (const cudaError_t error : {cudaErrorMemoryAllocation, cudaErrorNotSupported,
                                  cudaErrorNotPermitted, cudaErrorOperatingSystem}) {
    driver_.refused_bytes = 6;
    driver_.refusal = error;
    const auto pinned =
        PinnedRanges::Register(Ranges(20), PageLock::kRequired, pool_, driver_.calls());
    EXPECT_EQ(pinned.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(ReasonOf(pinned.status()), reason::kHostMemoryInsufficient);
    for (const char* part : {"210 B", cudaGetErrorName(error), "ulimit -l"}) {
      EXPECT_THAT(std::string(pinned.status().message()), HasSubstr(part));
    }
    EXPECT_TRUE(driver_.locked.empty());
  }
}

TEST_F(PinnedRangesTest, AfterARefusalNothingMoreIsAsked) {
  ThreadPool one(1);
  driver_.refused_bytes = 19;
  EXPECT_FALSE(PinnedRanges::Register(Ranges(20), PageLock::kRequired, one, driver_.calls()).ok());
  EXPECT_EQ(driver_.sizes_asked, (std::vector<size_t>{20, 19}));
}

TEST_F(PinnedRangesTest, PreferredKeepsWhatWasLockedBeforeARefusal) {
  ThreadPool one(1);
  driver_.refused_bytes = 18;
  {
    const auto pinned =
        PinnedRanges::Register(Ranges(20), PageLock::kPreferred, one, driver_.calls());
    ASSERT_TRUE(pinned.ok()) << pinned.status();
    EXPECT_EQ(driver_.locked.size(), 2u);
    EXPECT_EQ(pinned->unlocked_bytes(), 210 - 20 - 19);
    EXPECT_THAT(std::string(pinned->refusal().message()), HasSubstr("ulimit -l"));
  }
  EXPECT_TRUE(driver_.locked.empty());
}

TEST_F(PinnedRangesTest, PreferredHidesNoOtherError) {
  driver_.refused_bytes = 6;
  driver_.refusal = cudaErrorIllegalAddress;
  EXPECT_FALSE(
      PinnedRanges::Register(Ranges(20), PageLock::kPreferred, pool_, driver_.calls()).ok());
  EXPECT_TRUE(driver_.locked.empty());
}

TEST_F(PinnedRangesTest, OffAsksForNothing) {
  const auto pinned = PinnedRanges::Register(Ranges(20), PageLock::kOff, pool_, driver_.calls());
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  EXPECT_TRUE(driver_.sizes_asked.empty());
  EXPECT_EQ(pinned->unlocked_bytes(), 210);
  EXPECT_TRUE(pinned->refusal().ok());
}

TEST_F(PinnedRangesTest, SeveralThreadsLockAtOnce) {
  ThreadPool two(2);
  std::atomic<int> inside = 0;
  PinnedRanges::Calls calls = {.lock =
                                   [&](std::byte*, size_t) {
                                     ++inside;  // Returns only when the other has come.
                                     while (inside < 2) std::this_thread::yield();
                                     return cudaSuccess;
                                   },
                               .unlock = [](std::byte*) {}};
  EXPECT_TRUE(PinnedRanges::Register(Ranges(2), PageLock::kRequired, two, calls).ok());
  EXPECT_EQ(inside, 2);
}

TEST_F(PinnedRangesTest, WithoutADeviceTheErrorSaysSo) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) {
    GTEST_SKIP() << "this machine has a device";
  }
  const auto pinned = PinnedRanges::Register(Ranges(2), PageLock::kRequired, pool_);
  EXPECT_EQ(pinned.status().code(), absl::StatusCode::kUnavailable) << pinned.status();
}

}  // namespace
}  // namespace penstock::cuda
