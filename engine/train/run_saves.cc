#include "engine/train/run_saves.h"

#include <limits>
#include <optional>
#include <utility>

namespace penstock {

using Clock = SaveSchedule::Clock;

RunSaves::RunSaves(Args args)
    : args_(std::move(args)),
      schedule_(args_.config, Clock::now()),
      save_(static_cast<int64_t>(args_.store.layout().blocks.size()), args_.threads) {}

bool RunSaves::Has(int64_t step) const {
  return args_.checkpoints.Has(step) || (!save_.idle() && info_.step == step);
}

void RunSaves::Begin(CheckpointInfo info, double waited_seconds) {
  info_ = std::move(info);
  waited_seconds_ = waited_seconds;
  save_.Start([this](ThreadPool& pool, BlockCopied copied, ProgressFunction progress) {
    return args_.checkpoints.Write(
        args_.store, args_.source, info_, pool, progress,
        {.update_order = args_.update_order, .copied = copied, .provenance = &args_.provenance});
  });
}

void RunSaves::Collect() {
  if (const std::optional<BackgroundSave::Result> result = save_.Poll()) Report(*result);
}

void RunSaves::Finish() {
  if (save_.idle()) return;
  const Clock::time_point start = Clock::now();
  args_.observer.OnPhase(Phase::kCheckpoint, 0);
  const BackgroundSave::Result result = save_.Wait([this](int64_t done, int64_t total) {
    args_.observer.OnPhase(Phase::kCheckpoint,
                           static_cast<double>(done) / static_cast<double>(total));
  });
  waited_seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
  Report(result);
}

double RunSaves::TakeWaitedSeconds() {
  const double seconds = save_.TakeWaitedSeconds();
  waited_seconds_ += seconds;
  return seconds;
}

void RunSaves::Report(const BackgroundSave::Result& result) {
  error_ = result.written.status();
  if (!error_.ok()) {
    schedule_.Failed(Clock::now());
    args_.observer.OnCheckpointFailed(info_.step, error_);
    return;
  }
  args_.checkpoints.Saved(info_.step);
  schedule_.Saved(Clock::now());
  args_.observer.OnCheckpointSaved(
      {.step = info_.step,
       .bytes = result.written->bytes,
       .loss = info_.loss.value_or(std::numeric_limits<double>::quiet_NaN()),
       .evaluation_loss = info_.evaluation_loss,
       .directory = args_.checkpoints.PathOf(info_.step),
       .write_seconds = result.write_seconds,
       .waited_seconds = waited_seconds_,
       .provenance_sha256 = result.written->provenance_sha256});
  args_.checkpoints.Prune(args_.config.keep_best && info_.best ? std::optional(info_.best->step)
                                                               : std::nullopt);
}

}  // namespace penstock
