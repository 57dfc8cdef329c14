// Run twice by ctest: as it is, and with every variable set that asks OpenBLAS for threads. It
// reads them when it is loaded, before main.
#include <filesystem>
#include <iterator>
#include <vector>

#include "cblas.h"
#include "engine/base/thread_pool.h"
#include "engine/kernels/blas.h"
#include "gtest/gtest.h"

namespace penstock {
namespace {

int64_t ThreadsOfThisProcess() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

// Sgemm's first call is here, so the test fails on two cores if that call leaves OpenBLAS as the
// environment has it.
TEST(BlasThreadsTest, AProductRunsOnTheCallingThreadAlone) {
  constexpr int64_t kSize = 512;  // OpenBLAS runs small products on one thread anyway
  const std::vector<float> a(kSize * kSize, 0.5f);
  std::vector<float> c(kSize * kSize);
  const int64_t threads = ThreadsOfThisProcess();
  Sgemm(kSize, kSize, kSize, 1, {.data = a.data(), .stride = kSize},
        {.data = a.data(), .stride = kSize}, 0, c.data(), kSize);
  EXPECT_EQ(openblas_get_num_threads(), 1);
  EXPECT_LE(ThreadsOfThisProcess(), threads);
}

TEST(BlasThreadsTest, APoolHasTheThreadsItWasAskedFor) {
  const int64_t threads = ThreadsOfThisProcess();
  const ThreadPool pool(5);
  EXPECT_EQ(ThreadsOfThisProcess(), threads + 4);
}

}  // namespace
}  // namespace penstock
