#include "server/jobs/queue_pulse.h"

namespace penstock::server {

QueuePulse::QueuePulse(std::vector<TaskQueue*> queues) {
  for (TaskQueue* queue : queues) {
    beats_.push_back({queue, std::make_shared<std::atomic<bool>>(true)});
  }
}

bool QueuePulse::AllMoved() {
  bool all = true;
  for (const Beat& beat : beats_) {
    if (!beat.run->exchange(false)) {
      all = false;
      continue;
    }
    beat.queue->Post([run = beat.run] { run->store(true); });
  }
  return all;
}

}  // namespace penstock::server
