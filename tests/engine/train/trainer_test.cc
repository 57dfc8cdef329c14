// The Trainer under policies that keep things on the device or leave an update pending: whenever
// the store is settled it holds what the plain policy's store holds, bit for bit. The CPU executor
// runs every policy, so no GPU is needed.
#include "engine/train/trainer.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/data/dataset.h"
#include "engine/data/example_encoder.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/train/checkpoint.h"
#include "engine/train/random_init.h"
#include "gtest/gtest.h"
#include "tests/engine/train/train_testing.h"

namespace penstock {
namespace {

using testing::DeferringAndPlacing;
using testing::SomeText;
using testing::TempDir;
using testing::TinyTrainConfig;
using testing::UntiedModel;
using testing::UsePolicy;
using testing::WriteFileOrDie;

struct Trace {
  std::vector<std::vector<uint8_t>> stores;  // at each settled moment
  std::vector<double> losses;                // of steps and evaluations
  std::vector<int64_t> updates;
  int64_t asked = 0;  // blocks that steps asked for
};

std::vector<uint8_t> Bytes(const HostStore& store, BlockId id) {
  std::vector<uint8_t> bytes;
  const auto add = [&bytes](const auto& plane) {
    const auto* begin = reinterpret_cast<const uint8_t*>(plane.data());
    bytes.insert(bytes.end(), begin, begin + plane.size_bytes());
  };
  const BlockStore& block = store.block(id);
  add(block.hi);
  add(block.lo);
  add(block.m);
  add(block.v);
  return bytes;
}

std::vector<uint8_t> Bytes(const HostStore& store) {
  std::vector<uint8_t> all;
  for (const BlockLayout& block : store.layout().blocks) {
    const std::vector<uint8_t> bytes = Bytes(store, block.block);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

// Sees to it that no block of a store changes before this has been asked.
class ChangeGuard : public UpdateGate {
 public:
  explicit ChangeGuard(const HostStore& store) : store_(store) { Remember(); }

  void BeforeUpdate(BlockId block) override {
    std::lock_guard lock(mutex_);
    // Its moments may come after its weights.
    if (!asked_.insert(Index(block)).second) return;
    EXPECT_TRUE(Bytes(store_, block) == before_[Index(block)]) << "changed before it was asked";
  }

  // What was asked for since the last time.
  std::set<int32_t> Check() {
    for (const BlockLayout& block : store_.layout().blocks) {
      if (asked_.contains(Index(block.block))) continue;
      EXPECT_TRUE(Bytes(store_, block.block) == before_[Index(block.block)]) << "nobody asked";
    }
    Remember();
    return std::exchange(asked_, {});
  }

 private:
  void Remember() {
    before_.clear();
    for (const BlockLayout& block : store_.layout().blocks) {
      before_.push_back(Bytes(store_, block.block));
    }
  }

  const HostStore& store_;
  std::vector<std::vector<uint8_t>> before_;  // by block
  std::mutex mutex_;
  std::set<int32_t> asked_;
};

TrainingPlan PlanWith(const TrainConfig& config, const ModelInput& model, const Policy& policy) {
  TrainingPlan plan = *MakeTrainingPlan(config, model, 1000, UsableHostMemory(config));
  UsePolicy(policy, model, plan);
  return plan;
}

// Six steps with the last of an epoch smaller; evaluates after steps 2 and 5, settles after 3 and
// 6. With `resumed`, the run goes from one process to another after step 3, as far as a test can: a
// checkpoint, then a new store and a new trainer with that policy.
void RunPolicy(const TempDir& dir, const nlohmann::json& model_config, const Policy& policy,
               const Policy* resumed, Trace& run) {
  TrainConfig config = TinyTrainConfig(dir.Path("run"), dir.Path("data.txt"));
  config.model = ModelFromConfig{model_config.dump()};
  config.evaluation.validation_fraction = 0.2;
  config.schedule.max_steps = 6;
  const auto model = OpenModelInput(config);
  ASSERT_TRUE(model.ok()) << model.status();
  const ByteTokenizer tokenizer;
  const auto encoder = ExampleEncoder::Create({.tokenizer = &tokenizer});
  ASSERT_TRUE(encoder.ok()) << encoder.status();
  const auto data = OpenJobData({.train = config.data.datasets,
                                 .held_out = {.fraction = 0.2},
                                 .seed = 1,
                                 .embedding_rows = model->spec.vocab_size,
                                 .encoder = &*encoder,
                                 .cache_directory = config.token_cache_directory});
  ASSERT_TRUE(data.ok()) << data.status();
  ThreadPool pool(1);
  TrainingPlan plan = PlanWith(config, *model, policy);
  auto store = *HostStore::Create(model->layout, OptimizerState::kFloat32,
                                  GradientPlaneOf(model->spec, plan));
  InitializeWeights(model->spec, 1, *store, pool);
  auto trainer = Trainer::Create(config, *model, plan, *store, data->train, data->evaluation);
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  auto guard = std::make_unique<ChangeGuard>(*store);
  (*trainer)->set_update_gate(guard.get());
  for (int64_t step = 0; step < 6; ++step) {
    const auto record = (*trainer)->Step(step);
    ASSERT_TRUE(record.ok()) << record.status();
    const std::set<int32_t> asked = guard->Check();
    run.losses.push_back(record->loss);
    run.asked += static_cast<int64_t>(asked.size());
    if (step == 1 || step == 4) {
      const auto evaluation =
          (*trainer)->Evaluate(step + 1, [](double) { return absl::OkStatus(); });
      ASSERT_TRUE(evaluation.ok()) << evaluation.status();
      run.losses.push_back(evaluation->loss);
    }
    if (step != 2 && step != 5) continue;
    guard->Check();
    ASSERT_TRUE((*trainer)->SettleStore().ok());
    guard->Check();
    run.stores.push_back(Bytes(*store));
    run.updates.push_back(store->updates_applied);
    if (step != 2 || resumed == nullptr) continue;
    TempDir saved;
    const CheckpointInfo info{.step = 3, .updates_applied = store->updates_applied};
    ASSERT_TRUE(
        WriteCheckpoint(*store, model->source, info, saved.Path("3"), pool, testing::NoProgress)
            .ok());
    trainer->reset();
    plan = PlanWith(config, *model, *resumed);
    store = *HostStore::Create(model->layout, OptimizerState::kFloat32,
                               GradientPlaneOf(model->spec, plan));
    const auto opened = OpenCheckpoint(saved.Path("3"), Verification::kSizes);
    ASSERT_TRUE(opened.ok()) << opened.status();
    ASSERT_TRUE(LoadCheckpoint(**opened, *store, pool, testing::NoProgress).ok());
    trainer = Trainer::Create(config, *model, plan, *store, data->train, data->evaluation);
    ASSERT_TRUE(trainer.ok()) << trainer.status();
    guard = std::make_unique<ChangeGuard>(*store);
    (*trainer)->set_update_gate(guard.get());
  }
}

void ExpectSame(const Trace& run, const Trace& expected) {
  EXPECT_EQ(run.losses, expected.losses);
  EXPECT_EQ(run.updates, expected.updates);
  EXPECT_TRUE(run.stores == expected.stores) << "some bits of weights or moments differ";
}

TEST(TrainerTest, EveryPolicyLeavesTheSameStoreWhenSettled) {
  TempDir dir;
  WriteFileOrDie(dir.Path("data.txt"), SomeText(400));
  Trace expected;
  RunPolicy(dir, UntiedModel(), {}, nullptr, expected);
  ASSERT_EQ(expected.stores.size(), 2u);
  EXPECT_EQ(expected.updates, (std::vector<int64_t>{3, 6}));
  EXPECT_EQ(expected.asked, 6 * 4) << "all blocks in all steps";
  EXPECT_NE(expected.stores[0], expected.stores[1]);
  for (const Policy& policy : DeferringAndPlacing()) {
    Trace run;
    RunPolicy(dir, UntiedModel(), policy, nullptr, run);
    ExpectSame(run, expected);
  }
}

TEST(TrainerTest, ACheckpointCarriesARunFromAnyPolicyToAnyOther) {
  TempDir dir;
  WriteFileOrDie(dir.Path("data.txt"), SomeText(400));
  Trace expected;
  RunPolicy(dir, UntiedModel(), {}, nullptr, expected);
  std::vector<Policy> policies = DeferringAndPlacing();
  policies.push_back({});
  for (size_t from = 0; from < policies.size(); ++from) {
    for (size_t to = 0; to < policies.size(); ++to) {
      SCOPED_TRACE(::testing::Message() << from << " to " << to);
      Trace run;
      RunPolicy(dir, UntiedModel(), policies[from], &policies[to], run);
      ExpectSame(run, expected);
    }
  }
}

// Rounds order a tied model's sums, so here they are the same before and after.
TEST(TrainerTest, ACheckpointCarriesATiedRunToo) {
  TempDir dir;
  WriteFileOrDie(dir.Path("data.txt"), SomeText(400));
  nlohmann::json tied = UntiedModel();
  tied["tie_word_embeddings"] = true;
  const Policy policies[] = {
      {}, {.update_time = UpdateTime::kNextStep}, {.saving = {SaveLevel::kInput}}};
  Trace expected;
  RunPolicy(dir, tied, {}, nullptr, expected);
  for (const Policy& from : policies) {
    for (const Policy& to : policies) {
      Trace run;
      RunPolicy(dir, tied, from, &to, run);
      ExpectSame(run, expected);
    }
  }
}

}  // namespace
}  // namespace penstock
