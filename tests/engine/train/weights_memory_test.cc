// Import, checkpoint and export stay within what they tell the memory plan.
#include <cstring>
#include <fstream>
#include <string>

#include "engine/base/thread_pool.h"
#include "engine/train/checkpoint.h"
#include "engine/train/export.h"
#include "engine/train/import.h"
#include "engine/train/model_directory.h"
#include "gtest/gtest.h"
#include "weights_testing.h"

namespace penstock {
namespace {

using nlohmann::json;
using testing::MakeFiles;
using testing::MakeStore;
using testing::NoProgress;
using testing::SpecOf;
using testing::TempDir;
using testing::TinyConfig;
using testing::WriteModel;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // shadow memory counts as ours
#else
constexpr bool kSanitized = false;
#endif

// A line of /proc/self/status, in bytes.
int64_t StatusBytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  std::string word;
  while (file >> word) {
    int64_t kib = 0;
    if (word == key + ":" && file >> kib) return kib * 1024;
  }
  return -1;
}

// Bytes by which resident memory exceeded its start while `body` ran.
template <typename Body>
int64_t PeakAbove(Body body) {
  std::ofstream("/proc/self/clear_refs") << "5";  // VmHWM starts again from VmRSS
  const int64_t before = StatusBytes("VmRSS");
  body();
  return StatusBytes("VmHWM") - before;
}

// Far more than the windows: whoever holds a whole tensor or file breaks the bound.
TEST(WeightsMemoryTest, EveryPhaseStaysWithinItsPlan) {
  if (kSanitized) GTEST_SKIP() << "resident memory includes the sanitizer's";
  constexpr int kWorkers = 2;
  constexpr int64_t kSlack = int64_t{6} << 20;
  TempDir temp;
  json config = TinyConfig();
  config["vocab_size"] = 131072;
  {
    const auto files = MakeFiles(SpecOf(config), WeightType::kFloat32, 1);
    WriteModel(temp.Path("model"), config, files);
  }
  const auto directory = ModelDirectory::Open(temp.Path("model"));
  ASSERT_TRUE(directory.ok()) << directory.status();
  ASSERT_GT((*directory)->weight_bytes(), 2 * (ImportPeakBytes(kWorkers) + kSlack));
  const auto store = MakeStore((*directory)->layout());
  for (const BlockLayout& block : (*directory)->layout().blocks) {  // touch it all
    const BlockStore& planes = store->block(block.block);
    std::memset(planes.hi.data(), 0, planes.hi.size_bytes());
    std::memset(planes.lo.data(), 0, planes.lo.size_bytes());
  }
  ThreadPool pool(kWorkers);
  EXPECT_LE(
      PeakAbove([&] { ASSERT_TRUE(ImportWeights(**directory, *store, pool, NoProgress).ok()); }),
      ImportPeakBytes(kWorkers) + kSlack);
  EXPECT_LE(PeakAbove([&] {
              ASSERT_TRUE(WriteCheckpoint(*store, (*directory)->source(), {},
                                          temp.Path("checkpoint"), pool, NoProgress)
                              .ok());
            }),
            ExportPeakBytes(kWorkers) + kSlack);
  EXPECT_LE(
      PeakAbove([&] {
        ASSERT_TRUE(
            ExportModel(*store, (*directory)->source(), temp.Path("a"), {}, pool, NoProgress).ok());
      }),
      ExportPeakBytes(kWorkers) + kSlack);
  EXPECT_LE(
      PeakAbove([&] {
        ASSERT_TRUE(
            ExportCheckpoint(temp.Path("checkpoint"), temp.Path("b"), {}, pool, NoProgress).ok());
      }),
      ExportPeakBytes(kWorkers) + kSlack);
}

}  // namespace
}  // namespace penstock
