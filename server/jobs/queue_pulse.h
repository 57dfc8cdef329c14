// Whether task queues get on. The service manager's watchdog is fed on this: a timer alone would go
// on ticking in a daemon whose queues hang.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "server/jobs/task_queue.h"

namespace penstock::server {

// Belongs to one thread. The queues outlive it or are stopped.
class QueuePulse {
 public:
  explicit QueuePulse(std::vector<TaskQueue*> queues);

  // Whether each queue has run what the call before this one gave it; gives the next to those that
  // have. True at the first call.
  bool AllMoved();

 private:
  struct Beat {
    TaskQueue* queue;
    std::shared_ptr<std::atomic<bool>> run;
  };
  std::vector<Beat> beats_;
};

}  // namespace penstock::server
