// After set-up a step allocates nothing: counted by this binary's own operator new.
#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/exec/gpu_devices.h"
#include "gtest/gtest.h"
#include "tests/engine/exec/tiny_job.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};

void* Allocate(size_t bytes) {
  if (counting) ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes); }
void* operator new[](size_t bytes) { return Allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace penstock {
namespace {

TEST(AllocationTest, CounterCounts) {
  counting = true;
  delete new int(1);
  counting = false;
  EXPECT_GE(allocations.exchange(0), 1);
}

void ExpectRunsWithoutAllocating(const TinyJob::Options& options) {
  TinyJob job(options, RandomDocuments(8, 1));
  job.Run(2);  // BLAS takes its buffers at the first call, or searches an algorithm
  const StepProgram& program = job.program();
  std::vector<int32_t> ids(16, 1), positions, labels(16, 2), starts{0, 16};
  for (int32_t i = 0; i < 16; ++i) positions.push_back(i);
  const std::vector<MicroBatchView> views(
      program.micro_batches, {ids.data(), positions.data(), labels.data(), starts.data(), 1, 16});
  const StepInput input{.micro_batches = views,
                        .labelled_tokens = 16 * program.micro_batches,
                        .optimizer = job.optimizer()};
  StepResult result;
  counting = true;
  const absl::Status status = job.executor().Run(program, input, result);
  counting = false;
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(allocations.exchange(0), 0);
}

TEST(AllocationTest, RunningStepAllocatesNothing) { ExpectRunsWithoutAllocating({.threads = 2}); }

TEST(AllocationTest, RunningStepOnCudaAllocatesNothing) {
  if (ListGpuDevices().empty()) GTEST_SKIP() << "no GPU";
  ExpectRunsWithoutAllocating({.threads = 2, .backend = Backend::kCuda});
}

}  // namespace
}  // namespace penstock
