// Tells watch streams that there is something new to read. Carries no data: a stream reads the
// store and the files from its own cursor, so a slow one costs nothing but a flag.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace penstock::server {

enum class Topic : uint8_t {
  kEvents,  // rows of the event table; the job may have ended
  kData,    // metrics or log lines
};

// Thread-safe.
class EventHub {
 public:
  using Wake = std::function<void(Topic)>;
  using SubscriptionId = uint64_t;

  // `wake` is called on the publisher's thread and must only note and return; it may be called
  // once more while Unsubscribe runs, never after. Empty `job`: all jobs.
  SubscriptionId Subscribe(const std::string& job, Wake wake);
  void Unsubscribe(SubscriptionId id);
  void Publish(const std::string& job, Topic topic);

 private:
  struct Subscriber {
    std::string job;
    Wake wake;
  };
  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<SubscriptionId, Subscriber> subscribers_;
  std::multimap<std::string, SubscriptionId> by_job_;
  SubscriptionId next_id_ = 1;
};

}  // namespace penstock::server
