// The checkpoints of one job: {directory}/{step}, each complete (checkpoint.h). Keeps what the
// retention rule says, finds the one to go on from.
//
//   .{step}.staging-*    being written; one left by a killed process is removed by the next Open
//   .held-*, .leaving-*, .removed-*, .superseded-*     checkpoint_directory.h
//   .export-begun        NoteExportBegun
//   .unusable-{step}     set aside by LoadNewest: kept for people to look at
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/train/checkpoint.h"
#include "engine/train/retention.h"

namespace penstock {

// Thread-compatible, but for Write. One instance a directory at a time: the job's lock sees to it.
class JobCheckpoints {
 public:
  struct Events {
    std::function<void(const std::string& line)> log;
    std::function<void(int64_t step)> removed;
  };

  // Looks at what is there; the directory need not exist. Unavailable / IO_ERROR if it cannot be
  // listed: a run must not start from step 0 because its checkpoints cannot be seen.
  static absl::StatusOr<JobCheckpoints> Open(std::string directory, RetentionRule rule,
                                             Events events);

  // Fills the store from the newest checkpoint that can be used and gives its info; nothing if
  // there is none. Those after it are set aside with the reason in the log.
  // An error, with every checkpoint left where it is: CHECKPOINT_MISMATCH if the newest intact one
  // is of another run, Unimplemented if a later version wrote it, IO_ERROR if none is intact and
  // for one of them nobody knows, since it could not be read.
  // When this gives nothing, or an error, the store may hold some of a damaged one.
  absl::StatusOr<std::optional<CheckpointInfo>> LoadNewest(const RunFacts& facts, HostStore& store,
                                                           ThreadPool& pool,
                                                           ProgressFunction progress);

  // Of the newest checkpoint whose manifest can be read; none if there is none.
  std::optional<RunFacts> NewestFacts() const;

  bool any() const { return !steps_.empty(); }

  // The step to which a run may go back: the newest that is a multiple of `every` (0: of any), or
  // that is held, if that is newer. Nothing if there is none.
  absl::StatusOr<std::optional<int64_t>> StepToGoBackTo(int64_t every) const;
  // Checkpoints after `step` count no more; they are deleted when the next one is saved.
  absl::Status Supersede(int64_t step);
  bool Has(int64_t step) const { return steps_.contains(step); }
  std::string PathOf(int64_t step) const;

  // Writes {directory}/{info.step}. After an error what was there is there
  // still. May run on another thread than what follows: Saved() makes it one of the job's.
  // REQUIRES: !Has(info.step).
  absl::StatusOr<WrittenCheckpoint> Write(const HostStore& store, const ExportSource& source,
                                          const CheckpointInfo& info, ThreadPool& pool,
                                          ProgressFunction progress,
                                          const CheckpointWriteOptions& options) const;
  void Saved(int64_t step) { steps_.insert(step); }
  // Removes what need not stay, and what was superseded. REQUIRES: one was saved by now. `best`:
  // the step whose evaluation is the lowest, if that is to stay.
  void Prune(std::optional<int64_t> best);

  // A note in the directory that the job has begun to export to a place where nothing was. Best
  // effort: without it an attempt after the export finds the place taken.
  void NoteExportBegun() const;
  bool ExportBegun() const;

 private:
  JobCheckpoints(std::string directory, RetentionRule rule, Events events, std::set<int64_t> steps);
  absl::StatusOr<CheckpointInfo> Load(int64_t step, const RunFacts& facts, HostStore& store,
                                      ThreadPool& pool, ProgressFunction progress) const;
  // What stays for `best`.
  std::set<int64_t> BestToKeep(int64_t best) const;
  void SetAside(int64_t step, const absl::Status& why);
  void Remove(int64_t step);

  const std::string directory_;
  const RetentionRule rule_;
  const Events events_;
  std::set<int64_t> steps_;
};

}  // namespace penstock
