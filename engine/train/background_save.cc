#include "engine/train/background_save.h"

#include <chrono>
#include <utility>

#include "engine/base/check.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

BackgroundSave::BackgroundSave(int64_t num_blocks, int threads)
    : may_change_(static_cast<size_t>(num_blocks), true),
      pool_(threads),
      writer_([this] { WriterLoop(); }) {}

BackgroundSave::~BackgroundSave() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  state_changed_.notify_all();
  writer_.join();
}

void BackgroundSave::Start(Write write) {
  {
    std::lock_guard lock(mutex_);
    PENSTOCK_CHECK(state_ == State::kIdle, "one checkpoint is written at a time");
    state_ = State::kWriting;
    write_ = std::move(write);
    may_change_.assign(may_change_.size(), false);
    done_bytes_ = total_bytes_ = 0;
  }
  state_changed_.notify_all();
}

bool BackgroundSave::idle() const {
  std::lock_guard lock(mutex_);
  return state_ == State::kIdle;
}

std::optional<BackgroundSave::Result> BackgroundSave::Poll() {
  std::lock_guard lock(mutex_);
  if (state_ != State::kDone) return std::nullopt;
  return TakeResult();
}

BackgroundSave::Result BackgroundSave::Wait(
    absl::FunctionRef<void(int64_t done_bytes, int64_t total_bytes)> progress) {
  std::unique_lock lock(mutex_);
  PENSTOCK_CHECK(state_ != State::kIdle, "no checkpoint is being written");
  int64_t told = 0;
  while (state_ != State::kDone) {
    state_changed_.wait(lock, [&] { return state_ == State::kDone || done_bytes_ != told; });
    if (done_bytes_ == told) continue;
    told = done_bytes_;
    const int64_t total = total_bytes_;
    lock.unlock();
    progress(told, total);
    lock.lock();
  }
  return TakeResult();
}

BackgroundSave::Result BackgroundSave::TakeResult() {
  state_ = State::kIdle;
  return std::move(result_);
}

void BackgroundSave::BeforeUpdate(BlockId block) {
  std::unique_lock lock(mutex_);
  const auto may_change = [&] { return bool{may_change_[static_cast<size_t>(Index(block))]}; };
  if (may_change()) return;
  const Clock::time_point start = Clock::now();
  block_copied_.wait(lock, may_change);
  waited_seconds_ += SecondsSince(start);
}

double BackgroundSave::TakeWaitedSeconds() {
  std::lock_guard lock(mutex_);
  return std::exchange(waited_seconds_, 0);
}

void BackgroundSave::WriterLoop() {
  std::unique_lock lock(mutex_);
  while (true) {
    state_changed_.wait(lock, [this] { return state_ == State::kWriting || stopping_; });
    if (state_ != State::kWriting) return;
    const Write write = std::exchange(write_, nullptr);
    lock.unlock();
    const Clock::time_point start = Clock::now();
    const auto copied = [this](BlockId block) {
      {
        std::lock_guard guard(mutex_);
        may_change_[static_cast<size_t>(Index(block))] = true;
      }
      block_copied_.notify_all();
    };
    Result result;
    result.written = write(pool_, copied, [this](int64_t done, int64_t total) {
      {
        std::lock_guard guard(mutex_);
        done_bytes_ = done;
        total_bytes_ = total;
      }
      state_changed_.notify_all();
      return absl::OkStatus();  // what was begun is finished
    });
    result.write_seconds = SecondsSince(start);
    lock.lock();
    result_ = std::move(result);
    may_change_.assign(may_change_.size(), true);
    state_ = State::kDone;
    block_copied_.notify_all();
    state_changed_.notify_all();
  }
}

}  // namespace penstock
