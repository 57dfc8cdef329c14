// Which data a run leaves out after loss spikes, and so which data each of its steps has.
//
// The data of a job are a sequence of steps without end (data/batch.h). Step t trains on data step
// t + (data steps left out before t). A rollback leaves out some from its checkpoint's step on;
// what it leaves out is a note in the directory of the checkpoints, so that every later process,
// from whichever checkpoint it goes on, does the same.
//
//   .left-out-{step}-{number}-{data steps}   an empty file
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace penstock {

struct LeftOutData {
  int64_t step = 0;        // of the checkpoint that the run went back to; 0: its beginning
  int64_t data_steps = 0;  // more than 0
};

// By rollback, the first one first. Unavailable / IO_ERROR if the directory cannot be listed;
// nothing if there is none.
absl::StatusOr<std::vector<LeftOutData>> ReadLeftOutData(const std::string& directory);
// One more; on the device when this returns. `number`: how many there were.
absl::Status NoteLeftOutData(const std::string& directory, const LeftOutData& left_out,
                             int64_t number);

class DataCursor {
 public:
  // `left_out`: all of the run. Before step `known`, from which the process goes on, `offset` data
  // steps were left out: by the run, and by the one from whose checkpoint it began.
  DataCursor(int64_t known, int64_t offset, std::vector<LeftOutData> left_out);

  int64_t DataStep(int64_t step) const { return step + LeftOutBefore(step + 1); }
  // What the manifest of a checkpoint of this step says: without what is left out at it.
  int64_t LeftOutBefore(int64_t step) const;

 private:
  int64_t base_;  // left out by the other run
  std::vector<LeftOutData> left_out_;
};

}  // namespace penstock
