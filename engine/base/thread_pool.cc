#include "engine/base/thread_pool.h"

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"

namespace penstock {
namespace {

void RunTasks(std::atomic<int64_t>& next, int64_t tasks, ThreadPool::Body body, int worker) {
  // Relaxed: the counter only hands out numbers; the pool's mutex orders the data.
  for (int64_t task = next.fetch_add(1, std::memory_order_relaxed); task < tasks;
       task = next.fetch_add(1, std::memory_order_relaxed)) {
    body(task, worker);
  }
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  PENSTOCK_CHECK(threads >= 1, absl::StrCat("threads = ", threads));
  workers_.reserve(threads - 1);
  for (int worker = 1; worker < threads; ++worker) {
    workers_.emplace_back([this, worker] { WorkerLoop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::ParallelFor(int64_t tasks, Body body) {
  if (tasks <= 1 || workers_.empty()) {
    for (int64_t task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    next_task_.store(0, std::memory_order_relaxed);
    tasks_ = tasks;
    body_ = &body;
    open_ = true;
    ++job_;
  }
  wake_.notify_all();
  RunTasks(next_task_, tasks, body, 0);
  std::unique_lock lock(mutex_);
  open_ = false;
  idle_.wait(lock, [this] { return inside_ == 0; });
}

void ThreadPool::WorkerLoop(int worker) {
  int64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stopping_ || (open_ && job_ != seen); });
    if (stopping_) return;
    seen = job_;
    ++inside_;
    const int64_t tasks = tasks_;
    const Body body = *body_;
    lock.unlock();
    RunTasks(next_task_, tasks, body, worker);
    lock.lock();
    if (--inside_ == 0) idle_.notify_one();
  }
}

}  // namespace penstock
