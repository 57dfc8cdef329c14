// The checkpoints that a run writes: one at a time, while it trains on, each reported when it is
// there. If one is due before the last has ended, the run waits for that one first.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/ids.h"
#include "engine/engine.h"
#include "engine/exec/update_gate.h"
#include "engine/memory/host_store.h"
#include "engine/train/background_save.h"
#include "engine/train/checkpoint.h"
#include "engine/train/job_checkpoints.h"
#include "engine/train/save_schedule.h"

namespace penstock {

// Thread-compatible: the training thread's.
class RunSaves {
 public:
  // What is referred to outlives this.
  struct Args {
    const CheckpointConfig& config;
    const HostStore& store;
    const ExportSource& source;
    JobCheckpoints& checkpoints;
    TrainObserver& observer;
    const ProvenanceSource& provenance;
    int threads = 1;
    std::vector<BlockId> update_order = {};  // of the run's steps, in the store
  };
  explicit RunSaves(Args args);

  // To be asked by all that changes the store.
  UpdateGate* gate() { return &save_; }

  // Whether a checkpoint is to be saved after step `step`, now that it is done.
  bool Due(int64_t step) const { return schedule_.Due(step, SaveSchedule::Clock::now()); }
  // Whether there is one of the step, or is being written.
  bool Has(int64_t step) const;

  // Begins to write what the store holds. `waited_seconds`: what it cost to bring the store there.
  // REQUIRES: Finish(), and the store changes only through the gate; !Has(info.step).
  void Begin(CheckpointInfo info, double waited_seconds);
  // Reports the one that is written, if it is there.
  void Collect();
  // Waits for it, and reports it.
  void Finish();

  // Seconds for which a step has waited for the checkpoint, since this was last asked.
  double TakeWaitedSeconds();
  // Of the last that ended.
  const absl::Status& error() const { return error_; }

 private:
  void Report(const BackgroundSave::Result& result);

  const Args args_;
  SaveSchedule schedule_;
  absl::Status error_;
  CheckpointInfo info_;        // of the one that is written
  double waited_seconds_ = 0;  // for it, so far
  BackgroundSave save_;        // last: its threads use all of the above
};

}  // namespace penstock
