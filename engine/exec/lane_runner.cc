#include "engine/exec/lane_runner.h"

#include <algorithm>

#include "engine/base/status.h"

namespace penstock {

LaneRunner::LaneRunner() {
  for (int lane = 0; lane < kLaneCount; ++lane) {
    threads_.emplace_back([this, lane] { LaneLoop(static_cast<Lane>(lane)); });
  }
}

LaneRunner::~LaneRunner() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void LaneRunner::Reserve(size_t ops) {
  if (ops <= done_.size()) return;
  done_.resize(ops);
  times_.resize(ops);
}

absl::Status LaneRunner::Run(const StepProgram& program, RunOp run_op) {
  Reserve(program.ops.size());
  std::unique_lock lock(mutex_);
  op_count_ = program.ops.size();
  std::fill(done_.begin(), done_.end(), false);
  failed_ = false;
  status_ = absl::OkStatus();
  program_ = &program;
  run_op_ = &run_op;
  start_ = std::chrono::steady_clock::now();
  lanes_busy_ = kLaneCount;
  ++run_;
  changed_.notify_all();
  changed_.wait(lock, [this] { return lanes_busy_ == 0; });
  return status_;
}

void LaneRunner::LaneLoop(Lane lane) {
  int64_t seen = 0;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || run_ != seen; });
      if (stopping_) return;
      seen = run_;
    }
    RunLane(lane);
    {
      std::lock_guard lock(mutex_);
      --lanes_busy_;
    }
    changed_.notify_all();
  }
}

void LaneRunner::RunLane(Lane lane) {
  const auto now_ns = [this] {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now() - start_).count();
  };
  for (size_t i = 0; i < op_count_; ++i) {
    const Op& op = program_->ops[i];
    if (op.lane != lane) continue;
    if (!WaitFor(op)) return;
    times_[i].start_ns = now_ns();
    absl::Status status = (*run_op_)(op);
    times_[i].end_ns = now_ns();
    Finish(i, std::move(status));
  }
}

bool LaneRunner::WaitFor(const Op& op) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return failed_ || std::all_of(op.after.begin(), op.after.end(),
                                  [this](OpId after) { return done_[Index(after)]; });
  });
  return !failed_;
}

void LaneRunner::Finish(size_t index, absl::Status status) {
  {
    std::lock_guard lock(mutex_);
    done_[index] = true;
    if (!status.ok() && !failed_) {
      failed_ = true;
      status_ = Annotate(std::move(status), OpText(*program_, OpId{static_cast<int32_t>(index)}));
    }
  }
  changed_.notify_all();
}

}  // namespace penstock
