#include "engine/train/background_save.h"

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "engine/train/save_order.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;

std::vector<BlockId> Blocks(std::vector<int32_t> indices) {
  std::vector<BlockId> blocks;
  for (const int32_t index : indices) blocks.push_back(BlockId{index});
  return blocks;
}

TEST(ChooseSaveOrderTest, AFileIsDueWithTheFirstOfItsBlocksThatChanges) {
  const std::vector<std::vector<BlockId>> files = {Blocks({0}), Blocks({1, 2}), Blocks({2, 3}),
                                                   Blocks({4}), Blocks({3})};
  EXPECT_THAT(ChooseSaveOrder(files, Blocks({0, 1, 2, 3, 4})), ElementsAre(0, 1, 2, 4, 3));
  // Another order; what never changes comes last, in the order of the files.
  EXPECT_THAT(ChooseSaveOrder(files, Blocks({4, 3})), ElementsAre(3, 2, 4, 0, 1));
  EXPECT_THAT(ChooseSaveOrder(files, {}), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(ChooseSaveOrder({}, Blocks({0})), ElementsAre());
}

// Block 1 has master weights on the device: the host changes its moments alone, and later.
TEST(HostUpdateOrderTest, ABlockChangesWithTheFirstOfItsParts) {
  const auto host = [](int32_t block, UpdatePart part) {
    return Op{Lane::kHost, {}, UpdateHost{.block = BlockId{block}, .part = part}};
  };
  StepProgram program;
  program.ops = {
      Op{Lane::kCompute, {}, UpdateDevice{BlockId{3}, kNoBuffer, kNoBuffer, kNoBuffer, kNoBuffer}},
      host(0, UpdatePart::kWeights),
      host(2, UpdatePart::kWeights),
      host(2, UpdatePart::kMoments),
      host(1, UpdatePart::kMoments),
      host(0, UpdatePart::kMoments)};
  EXPECT_EQ(HostUpdateOrder(program), Blocks({0, 2, 1}));
}

TEST(BackgroundSaveTest, WithoutASaveEveryBlockMayChange) {
  BackgroundSave save(2, 1);
  save.BeforeUpdate(BlockId{1});
  EXPECT_TRUE(save.idle());
  EXPECT_FALSE(save.Poll().has_value());
  EXPECT_EQ(save.TakeWaitedSeconds(), 0);
}

TEST(BackgroundSaveTest, ABlockMayChangeOnceItIsCopiedAndWaitsForNoOther) {
  BackgroundSave save(2, 1);
  std::promise<void> first_may_be_copied, second_may_be_copied;
  save.Start(
      [&](ThreadPool&, BlockCopied copied, ProgressFunction) -> absl::StatusOr<WrittenCheckpoint> {
        first_may_be_copied.get_future().wait();
        copied(BlockId{0});
        second_may_be_copied.get_future().wait();
        copied(BlockId{1});
        return WrittenCheckpoint{.bytes = 7};
      });
  std::atomic<bool> first_changed = false, second_changed = false;
  std::thread second([&] {
    save.BeforeUpdate(BlockId{1});
    second_changed = true;
  });
  std::thread first([&] {
    save.BeforeUpdate(BlockId{0});
    first_changed = true;
  });
  EXPECT_FALSE(first_changed);
  first_may_be_copied.set_value();
  first.join();
  EXPECT_FALSE(second_changed);
  EXPECT_FALSE(save.Poll().has_value());
  EXPECT_FALSE(save.idle());
  second_may_be_copied.set_value();
  second.join();
  const BackgroundSave::Result result = save.Wait([](int64_t, int64_t) {});
  EXPECT_EQ(result.written->bytes, 7);
  EXPECT_GT(result.write_seconds, 0);
  EXPECT_TRUE(save.idle());
}

TEST(BackgroundSaveTest, WaitingIsCounted) {
  BackgroundSave save(1, 1);
  std::promise<void> may_be_copied;
  save.Start(
      [&](ThreadPool&, BlockCopied copied, ProgressFunction) -> absl::StatusOr<WrittenCheckpoint> {
        may_be_copied.get_future().wait();
        copied(BlockId{0});
        return WrittenCheckpoint{.bytes = 7};
      });
  // Long enough for this thread to come to wait, however busy the machine is.
  std::thread releaser([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    may_be_copied.set_value();
  });
  save.BeforeUpdate(BlockId{0});
  releaser.join();
  save.Wait([](int64_t, int64_t) {});
  EXPECT_GT(save.TakeWaitedSeconds(), 0);
  EXPECT_EQ(save.TakeWaitedSeconds(), 0);
}

TEST(BackgroundSaveTest, AfterAFailureEveryBlockMayChangeAndTheNextSaveIsAsGood) {
  BackgroundSave save(3, 2);
  for (int round = 0; round < 3; ++round) {
    std::promise<void> may_fail;
    save.Start([&](ThreadPool& pool, BlockCopied copied, ProgressFunction) {
      copied(BlockId{0});
      std::atomic<int> tasks = 0;
      pool.ParallelFor(5, [&](int64_t, int) { ++tasks; });
      EXPECT_EQ(tasks, 5);
      may_fail.get_future().wait();
      return absl::StatusOr<WrittenCheckpoint>(absl::UnavailableError("the disk is gone"));
    });
    std::thread update([&] {
      for (int32_t block = 0; block < 3; ++block) save.BeforeUpdate(BlockId{block});
    });
    may_fail.set_value();
    update.join();
    std::optional<BackgroundSave::Result> result;
    while (!(result = save.Poll())) std::this_thread::yield();
    EXPECT_TRUE(absl::IsUnavailable(result->written.status()));
    EXPECT_TRUE(save.idle());
    EXPECT_FALSE(save.Poll().has_value()) << "given once";
  }
}

TEST(BackgroundSaveTest, WhoWaitsIsToldHowFarItIs) {
  BackgroundSave save(1, 1);
  std::promise<void> half_told;
  save.Start([&](ThreadPool&, BlockCopied,
                 ProgressFunction progress) -> absl::StatusOr<WrittenCheckpoint> {
    EXPECT_TRUE(progress(5, 10).ok());
    half_told.get_future().wait();
    return WrittenCheckpoint{.bytes = 10};
  });
  int64_t told = 0;
  const BackgroundSave::Result result = save.Wait([&](int64_t done, int64_t total) {
    EXPECT_EQ(total, 10);
    told = done;
    half_told.set_value();
  });
  EXPECT_EQ(told, 5);
  EXPECT_TRUE(result.written.ok());
}

TEST(BackgroundSaveTest, WhatWasBegunIsFinishedThoughNobodyAsks) {
  std::atomic<bool> finished = false;
  {
    BackgroundSave save(1, 1);
    save.Start([&](ThreadPool&, BlockCopied copied,
                   ProgressFunction) -> absl::StatusOr<WrittenCheckpoint> {
      copied(BlockId{0});
      finished = true;
      return WrittenCheckpoint{.bytes = 1};
    });
  }
  EXPECT_TRUE(finished);
}

}  // namespace
}  // namespace penstock
