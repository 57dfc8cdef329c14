// Writes one checkpoint at a time on threads of its own while steps run.
//
//   idle --Start--> writing --> done --Poll, Wait--> idle
//
// The checkpoint is of the step that the store holds at Start: as the gate of the steps that
// follow, this lets none change a block before what the checkpoint holds of it has been copied or
// written. If the write fails, all blocks may change at once.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/base/thread_pool.h"
#include "engine/exec/update_gate.h"
#include "engine/train/checkpoint.h"
#include "engine/train/progress.h"

namespace penstock {

// Start, Poll and Wait: one thread. The gate: any.
class BackgroundSave final : public UpdateGate {
 public:
  struct Result {
    absl::StatusOr<WrittenCheckpoint> written = WrittenCheckpoint();
    double write_seconds = 0;
  };
  // Runs on the writer's thread with a pool that is its own meanwhile.
  using Write = std::function<absl::StatusOr<WrittenCheckpoint>(
      ThreadPool& pool, const BlockCopied& copied, ProgressFunction progress)>;

  // All threads are there from now on, so that a save in the middle of a run needs none.
  BackgroundSave(int64_t num_blocks, int threads);
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;
  // Waits for the end of the write: what was begun is whole.
  ~BackgroundSave() override;

  // REQUIRES: idle.
  void Start(Write write);
  bool idle() const;
  // The result, once, if the write has ended.
  std::optional<Result> Poll();
  // The same after its end; `progress` is called on this thread meanwhile. REQUIRES: not idle.
  Result Wait(absl::FunctionRef<void(int64_t done_bytes, int64_t total_bytes)> progress);

  void BeforeUpdate(BlockId block) override;
  // How long lanes have waited in BeforeUpdate since this was last asked.
  double TakeWaitedSeconds();

 private:
  enum class State : uint8_t { kIdle, kWriting, kDone };
  void WriterLoop();
  Result TakeResult();

  // std::mutex, not absl::Mutex: the thread sanitizer knows it without a rebuilt Abseil.
  mutable std::mutex mutex_;
  std::condition_variable state_changed_, block_copied_;
  // Guarded by mutex_.
  State state_ = State::kIdle;
  bool stopping_ = false;
  Write write_;
  Result result_;
  std::vector<bool> may_change_;  // by block
  int64_t done_bytes_ = 0, total_bytes_ = 0;
  double waited_seconds_ = 0;

  ThreadPool pool_;
  std::thread writer_;  // last: it uses all of the above
};

}  // namespace penstock
