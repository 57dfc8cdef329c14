// What the messages of a watch tell, gathered.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/v1/job.pb.h"

namespace penstock::server {

struct Seen {
  std::vector<int64_t> steps;
  std::vector<std::string> lines;
  std::vector<uint64_t> sequences;
  std::vector<v1::JobState> states;
  int caught_up = 0;
  std::optional<v1::Job> end;
};

inline Seen Summarize(const std::vector<v1::WatchJobsResponse>& messages) {
  Seen seen;
  for (const auto& message : messages) {
    if (message.has_metrics()) seen.steps.push_back(message.metrics().step());
    for (const auto& line : message.log_lines().lines()) seen.lines.push_back(line);
    if (message.has_state_changed()) {
      seen.sequences.push_back(message.state_changed().sequence());
      seen.states.push_back(message.state_changed().job().state());
    }
    if (message.has_checkpoint_saved()) {
      seen.sequences.push_back(message.checkpoint_saved().sequence());
    }
    seen.caught_up += message.has_caught_up() ? 1 : 0;
    if (message.has_end()) seen.end = message.end().job();
  }
  return seen;
}

inline std::vector<int64_t> UpTo(int64_t last) {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= last; ++step) steps.push_back(step);
  return steps;
}

}  // namespace penstock::server
