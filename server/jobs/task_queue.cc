#include "server/jobs/task_queue.h"

#include <pthread.h>

#include <memory>
#include <utility>

#include "server/access/call.h"

namespace penstock::server {

TaskQueue::TaskQueue(const std::string& name, int threads) {
  for (int i = 0; i < threads; ++i) {
    std::thread& thread = threads_.emplace_back([this] { Run(); });
    pthread_setname_np(thread.native_handle(), name.substr(0, 15).c_str());
  }
}

TaskQueue::~TaskQueue() { Stop(); }

namespace {

TaskQueue::Task ForCurrentCall(TaskQueue::Task task) {
  std::shared_ptr<Call> call = CurrentCall();
  if (call == nullptr) return task;
  return [call = std::move(call), task = std::move(task)]() mutable {
    const CallScope scope(std::move(call));
    task();
  };
}

}  // namespace

void TaskQueue::Post(Task task) {
  task = ForCurrentCall(std::move(task));
  {
    std::lock_guard lock(mutex_);
    ready_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void TaskQueue::PostAfter(std::chrono::milliseconds delay, Task task) {
  {
    std::lock_guard lock(mutex_);
    delayed_.emplace(Clock::now() + delay, std::move(task));
  }
  wake_.notify_one();
}

void TaskQueue::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void TaskQueue::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    while (!delayed_.empty() && delayed_.begin()->first <= Clock::now()) {
      ready_.push_back(std::move(delayed_.begin()->second));
      delayed_.erase(delayed_.begin());
    }
    if (!ready_.empty()) {
      Task task = std::move(ready_.front());
      ready_.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // What the task owned is destroyed outside the lock.
      lock.lock();
      continue;
    }
    if (stopping_) break;
    if (delayed_.empty()) {
      wake_.wait(lock);
    } else {
      wake_.wait_until(lock, delayed_.begin()->first);
    }
  }
}

}  // namespace penstock::server
