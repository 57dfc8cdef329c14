#include "server/jobs/event_hub.h"

#include <utility>

namespace penstock::server {

EventHub::SubscriptionId EventHub::Subscribe(const std::string& job, Wake wake) {
  std::lock_guard lock(mutex_);
  const SubscriptionId id = next_id_++;
  subscribers_.emplace(id, Subscriber{job, std::move(wake)});
  by_job_.emplace(job, id);
  return id;
}

void EventHub::Unsubscribe(SubscriptionId id) {
  std::lock_guard lock(mutex_);
  const auto found = subscribers_.find(id);
  if (found == subscribers_.end()) return;
  const auto [first, last] = by_job_.equal_range(found->second.job);
  for (auto it = first; it != last; ++it) {
    if (it->second == id) {
      by_job_.erase(it);
      break;
    }
  }
  subscribers_.erase(found);
}

void EventHub::Publish(const std::string& job, Topic topic) {
  std::lock_guard lock(mutex_);
  for (const std::string& key : {job, std::string()}) {
    const auto [first, last] = by_job_.equal_range(key);
    for (auto it = first; it != last; ++it) subscribers_.at(it->second).wake(topic);
  }
}

}  // namespace penstock::server
