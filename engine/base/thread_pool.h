// ThreadPool: the threads that share the work of one op.
//
// A pool belongs to one executor lane. Its workers live as long as it does; ParallelFor makes
// no thread and allocates nothing, so a running step keeps the promise that all memory is
// planned.
//
// Every worker has a share of the tasks, share w of size() in order, and takes from the others'
// when it is done with its own. Jobs over the same array thus mostly meet the same worker at the
// same place, which keeps memory near the NUMA node that touched it (cpu_places.h).
//
// But which worker runs which task is not fixed. So a result may depend on the task, never on the
// worker, and ops cut their work into tasks by shape alone: that makes the bits independent of
// the number of threads.
//
// One caller at a time: ParallelFor must not be called from two threads at once, nor from
// inside a body.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/base/cpu_places.h"

namespace penstock {

class ThreadPool {
 public:
  using Body = absl::FunctionRef<void(int64_t task, int worker)>;

  // The caller of ParallelFor counts as one of `threads`; so 1 starts none.
  // Thread i may run only on the CPUs places[i], anywhere if `places` is empty. The caller, thread
  // 0, stays as it is: a thread hands its CPUs down to all that it starts.
  // REQUIRES: threads >= 1; places has `threads` sets or none.
  explicit ThreadPool(int threads, const std::vector<CpuSet>& places = {});
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  // REQUIRES: no ParallelFor is running.
  ~ThreadPool();

  int size() const { return static_cast<int>(shares_.size()); }

  // Calls body(task, worker) once for every task in [0, tasks), worker in [0, size()), and
  // returns when all calls have returned; what they wrote is visible to the caller. Two calls
  // with the same worker never overlap, so `worker` may index scratch memory.
  // REQUIRES: body does not throw.
  void ParallelFor(int64_t tasks, Body body);

 private:
  // A line of its own: the counter is written by its worker task after task.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  void CutShares(int64_t tasks);
  void RunTasks(Body body, int worker);
  void WorkerLoop(int worker);

  // std::mutex, not absl::Mutex: the thread sanitizer knows it without a rebuilt Abseil.
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  // Guarded by mutex_. A job is open from ParallelFor's start until its caller finds no task
  // left; a worker that wakes later than that skips it, so nobody waits for a slow waker.
  bool stopping_ = false;
  bool open_ = false;
  int64_t job_ = 0;
  int inside_ = 0;  // workers now in the open or just closed job
  const Body* body_ = nullptr;
  std::vector<Share> shares_;  // cut when no worker is inside

  std::vector<std::thread> workers_;
};

}  // namespace penstock
