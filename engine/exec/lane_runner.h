// LaneRunner: four threads, one a lane, that run the ops of a program in its order.
//
// On the CPU an op is done when it returns, and as lanes are real threads, a hazard that a
// program forgot shows under the thread sanitizer. On a GPU a thread queues its lane's ops on
// the lane's stream, and what has returned has been queued; streams order the rest by events.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/exec/executor.h"
#include "engine/plan/step_program.h"

namespace penstock {

class LaneRunner {
 public:
  using RunOp = absl::FunctionRef<absl::Status(const Op& op)>;

  LaneRunner();
  LaneRunner(const LaneRunner&) = delete;
  LaneRunner& operator=(const LaneRunner&) = delete;
  ~LaneRunner();

  // Room for a program of this many ops, so that Run does not allocate.
  void Reserve(size_t ops);

  // Calls run_op for every op on its lane's thread: ops of a lane in list order, each after those
  // it names. Returns when all lanes have stopped, with the first failure.
  absl::Status Run(const StepProgram& program, RunOp run_op);

  std::span<const OpTime> times() const { return {times_.data(), op_count_}; }

 private:
  void LaneLoop(Lane lane);
  void RunLane(Lane lane);
  // False if the program has failed meanwhile.
  bool WaitFor(const Op& op);
  void Finish(size_t index, absl::Status status);

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_, but for times_[i], which only the lane of op i writes during a run.
  int64_t run_ = 0;
  int lanes_busy_ = 0;
  bool stopping_ = false;
  bool failed_ = false;
  absl::Status status_;
  std::vector<bool> done_;
  std::vector<OpTime> times_;
  size_t op_count_ = 0;
  const StepProgram* program_ = nullptr;
  const RunOp* run_op_ = nullptr;
  std::chrono::steady_clock::time_point start_;

  std::vector<std::thread> threads_;
};

}  // namespace penstock
