#include "engine/base/thread_pool.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"

namespace penstock {

ThreadPool::ThreadPool(int threads, const std::vector<CpuSet>& places)
    : shares_(static_cast<size_t>(std::max(threads, 1))) {
  PENSTOCK_CHECK(threads >= 1, absl::StrCat("threads = ", threads));
  PENSTOCK_CHECK(places.empty() || places.size() == shares_.size(),
                 absl::StrCat(places.size(), " places for ", threads, " threads"));
  workers_.reserve(threads - 1);
  for (int worker = 1; worker < threads; ++worker) {
    workers_.emplace_back([this, worker] { WorkerLoop(worker); });
    if (!places.empty()) Bind(workers_.back(), places[worker]);  // Refused: only slower.
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
    CutShares(tasks);
    body_ = &body;
    open_ = true;
    ++job_;
  }
  wake_.notify_all();
  RunTasks(body, 0);
  std::unique_lock lock(mutex_);
  open_ = false;
  idle_.wait(lock, [this] { return inside_ == 0; });
}

void ThreadPool::CutShares(int64_t tasks) {
  const int64_t whole = tasks / size(), longer = tasks % size();
  int64_t begin = 0;
  for (int worker = 0; worker < size(); ++worker) {
    shares_[worker].next.store(begin, std::memory_order_relaxed);
    begin += whole + (worker < longer ? 1 : 0);
    shares_[worker].end = begin;
  }
}

void ThreadPool::RunTasks(Body body, int worker) {
  for (int turn = 0; turn < size(); ++turn) {
    Share& share = shares_[(worker + turn) % size()];
    // Relaxed: the counter only hands out numbers; the pool's mutex orders the data.
    for (int64_t task = share.next.fetch_add(1, std::memory_order_relaxed); task < share.end;
         task = share.next.fetch_add(1, std::memory_order_relaxed)) {
      body(task, worker);
    }
  }
}

void ThreadPool::WorkerLoop(int worker) {
  int64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stopping_ || (open_ && job_ != seen); });
    if (stopping_) return;
    seen = job_;
    ++inside_;
    const Body body = *body_;
    lock.unlock();
    RunTasks(body, worker);
    lock.lock();
    if (--inside_ == 0) idle_.notify_one();
  }
}

}  // namespace penstock
