#include "engine/base/thread_pool.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace penstock {
namespace {

TEST(ThreadPoolTest, RunsEveryTaskOnceAndShowsTheCallerWhatItWrote) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (const int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<int> calls(tasks, 0);  // not atomic: the pool orders it
      pool.ParallelFor(tasks, [&](int64_t task, int worker) {
        ASSERT_GE(worker, 0);
        ASSERT_LT(worker, threads);
        ++calls[task];
      });
      EXPECT_EQ(calls, std::vector<int>(tasks, 1));
    }
  }
}

// Short jobs in a row are where a late worker could meet the next job.
TEST(ThreadPoolTest, ManyShortJobsInARow) {
  ThreadPool pool(4);
  std::array<int64_t, 3> sums{};
  for (int64_t job = 0; job < 20000; ++job) {
    pool.ParallelFor(3, [&](int64_t task, int) { sums[task] += job; });
  }
  const int64_t expected = int64_t{20000} * 19999 / 2;
  for (const int64_t sum : sums) EXPECT_EQ(sum, expected);
}

TEST(ThreadPoolTest, CallsWithOneWorkerNumberNeverOverlap) {
  ThreadPool pool(4);
  std::array<std::atomic<int>, 4> inside{};
  std::atomic<int> overlaps = 0;
  for (int job = 0; job < 200; ++job) {
    pool.ParallelFor(100, [&](int64_t, int worker) {
      if (inside[worker].fetch_add(1) != 0) ++overlaps;
      inside[worker].fetch_sub(1);
    });
  }
  EXPECT_EQ(overlaps, 0);
}

TEST(ThreadPoolTest, SeveralThreadsWorkAtOnce) {
  ThreadPool pool(2);
  std::atomic<int> arrived = 0;
  // Both tasks wait for each other, so one thread alone would never return.
  pool.ParallelFor(2, [&](int64_t, int) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
}

TEST(ThreadPoolTest, EveryWorkerBeginsWithItsOwnShare) {
  ThreadPool pool(4);
  for (int job = 0; job < 100; ++job) {
    std::array<std::atomic<int>, 4> first_task;
    for (auto& task : first_task) task = -1;
    std::atomic<int> arrived = 0;
    pool.ParallelFor(12, [&](int64_t task, int worker) {
      int none = -1;
      if (!first_task[worker].compare_exchange_strong(none, static_cast<int>(task))) return;
      ++arrived;  // Nobody takes a second task before all have taken a first.
      while (arrived < 4) std::this_thread::yield();
    });
    for (int worker = 0; worker < 4; ++worker) EXPECT_EQ(first_task[worker], 3 * worker);
  }
}

TEST(ThreadPoolTest, WorkersFinishTheSharesOfOthers) {
  ThreadPool pool(2);
  std::atomic<int> others = 0;
  // Task 0 lasts until all of the rest, its own share's included, are done.
  pool.ParallelFor(10, [&](int64_t task, int) {
    if (task != 0) {
      ++others;
      return;
    }
    while (others < 9) std::this_thread::yield();
  });
  EXPECT_EQ(others, 9);
}

TEST(ThreadPoolTest, AnUnusedPoolEnds) {
  for (int i = 0; i < 100; ++i) ThreadPool pool(3);
}

}  // namespace
}  // namespace penstock
