#include "tests/load/findings.h"

#include <algorithm>

namespace penstock::load {

void Findings::Add(const std::string& what) {
  std::lock_guard lock(mutex_);
  if (++count_ <= 20) texts_.push_back(what);
}

int64_t Findings::count() const {
  std::lock_guard lock(mutex_);
  return count_;
}

std::vector<std::string> Findings::texts() const {
  std::lock_guard lock(mutex_);
  return texts_;
}

void Findings::Measure(bool on) {
  std::lock_guard lock(mutex_);
  measuring_ = on;
}

void Findings::AddTime(Method method, double ms) {
  std::lock_guard lock(mutex_);
  if (measuring_) times_[static_cast<size_t>(method)].push_back(ms);
}

Quantiles Findings::Times(Method method) const {
  std::vector<double> times;
  {
    std::lock_guard lock(mutex_);
    times = times_[static_cast<size_t>(method)];
  }
  if (times.empty()) return {};
  std::sort(times.begin(), times.end());
  return {.count = static_cast<int64_t>(times.size()),
          .p50_ms = times[times.size() / 2],
          .p99_ms = times[times.size() * 99 / 100],
          .max_ms = times.back()};
}

}  // namespace penstock::load
