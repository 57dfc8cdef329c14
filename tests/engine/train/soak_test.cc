// A run of thousands of steps with saves, evaluations and removals: what the process holds at the
// end is what it held near the beginning. Lasts PENSTOCK_SOAK_SECONDS, a minute if that is not set,
// and prints its figures.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "engine/engine.h"
#include "gtest/gtest.h"
#include "tests/engine/train/train_testing.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using testing::SomeText;
using testing::TempDir;
using testing::TinyTrainConfig;
using testing::UntiedModel;
using testing::WriteFileOrDie;

int64_t SoakSeconds() {
  const char* text = std::getenv("PENSTOCK_SOAK_SECONDS");
  int64_t seconds = 0;
  return text != nullptr && absl::SimpleAtoi(text, &seconds) ? seconds : 60;
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t OpenDescriptors() {
  const fs::directory_iterator entries("/proc/self/fd");
  return std::distance(fs::begin(entries), fs::end(entries)) - 1;  // less the iterator's own
}

int64_t Threads() {
  const fs::directory_iterator entries("/proc/self/task");
  return std::distance(fs::begin(entries), fs::end(entries));
}

struct Sample {
  int64_t step, resident_bytes, descriptors, threads;
};

// Remembers nothing of a step but samples, so that what grows is the trainer's.
class SamplingObserver : public TrainObserver {
 public:
  explicit SamplingObserver(Clock::time_point end) : end_(end) {
    samples.reserve(int64_t{1} << 16);
  }
  void OnLog(const std::string&) override {}
  void OnPhase(Phase, double) override {}
  void OnTotalSteps(int64_t) override {}
  void OnStep(const StepRecord& record) override {
    steps = record.step;
    if (record.step % kStepsPerSample != 0 || samples.size() == samples.capacity()) return;
    samples.push_back({record.step, ResidentBytes(), OpenDescriptors(), Threads()});
  }
  void OnPlanMissed(const PlanMissRecord&) override {}
  void OnEvaluation(const EvaluationRecord&) override { ++evaluations; }
  void OnResumed(const ResumeRecord&) override {}
  void OnCheckpointSaved(const CheckpointRecord&) override { ++saved; }
  void OnCheckpointRemoved(int64_t) override { ++removed; }
  void OnCheckpointFailed(int64_t, const absl::Status& error) override { ADD_FAILURE() << error; }
  bool TakeSaveRequest() override { return false; }
  Wish Ask() override { return Clock::now() >= end_ ? Wish::kStop : Wish::kContinue; }

  std::vector<Sample> samples;
  int64_t steps = 0, evaluations = 0, saved = 0, removed = 0;

 private:
  // Between two saves, at which moment descriptors of the one before may be open.
  static constexpr int64_t kStepsPerSample = 10;
  const Clock::time_point end_;
};

TEST(SoakTest, MemoryDescriptorsAndThreadsStayWhatTheyAre) {
  TempDir dir;
  WriteFileOrDie(dir.Path("data.txt"), SomeText(2000));
  TrainConfig config = TinyTrainConfig(dir.path(), dir.Path("data.txt"));
  config.model = ModelFromConfig{UntiedModel().dump()};
  config.schedule.max_steps = int64_t{1} << 40;
  config.evaluation = {.validation_fraction = 0.2, .every_steps = 25};
  config.checkpoints = {.every_steps = 7, .keep_last = 2, .keep_best = true};
  SamplingObserver observer(Clock::now() + std::chrono::seconds(SoakSeconds()));
  const auto summary = Train(config, observer);
  ASSERT_TRUE(summary.ok()) << summary.status();
  const std::vector<Sample>& samples = observer.samples;
  ASSERT_GE(samples.size(), 40u) << "too few steps to say anything";

  const auto most = [&](size_t begin, size_t end, int64_t Sample::*field) {
    int64_t largest = 0;
    for (size_t i = begin; i < end; ++i) largest = std::max(largest, samples[i].*field);
    return largest;
  };
  const size_t quarter = samples.size() / 4, all = samples.size();
  std::printf("%ld steps, %ld evaluations, %ld checkpoints, %ld removed\n", observer.steps,
              observer.evaluations, observer.saved, observer.removed);
  for (size_t part = 0; part < 4; ++part) {
    const size_t begin = part * quarter, end = part == 3 ? all : begin + quarter;
    std::printf("steps to %8ld: at most %.2f MiB resident, %ld descriptors, %ld threads\n",
                samples[end - 1].step,
                static_cast<double>(most(begin, end, &Sample::resident_bytes)) / (1 << 20),
                most(begin, end, &Sample::descriptors), most(begin, end, &Sample::threads));
  }
  // The second quarter is past all first times.
  constexpr int64_t kSlack = int64_t{1} << 20;
  EXPECT_LE(most(3 * quarter, all, &Sample::resident_bytes),
            most(quarter, 2 * quarter, &Sample::resident_bytes) + kSlack);
  EXPECT_LE(most(3 * quarter, all, &Sample::descriptors),
            most(0, 2 * quarter, &Sample::descriptors));
  EXPECT_EQ(most(3 * quarter, all, &Sample::threads), most(0, quarter, &Sample::threads));
}

}  // namespace
}  // namespace penstock
