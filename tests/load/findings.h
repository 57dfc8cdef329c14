// What a load test measures and finds wrong, gathered from all its threads.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace penstock::load {

enum class Method : uint8_t { kSubmit, kGet, kList, kCancel };
inline constexpr std::array<const char*, 4> kMethodNames = {"CreateJob", "GetJob", "ListJobs",
                                                            "CancelJob"};

struct Quantiles {
  int64_t count = 0;
  double p50_ms = 0, p99_ms = 0, max_ms = 0;
};

// Thread-safe.
class Findings {
 public:
  // A wrong thing; the first 20 are kept in words.
  void Add(const std::string& what);
  int64_t count() const;
  std::vector<std::string> texts() const;

  // Times count only while it is on.
  void Measure(bool on);
  void AddTime(Method method, double ms);
  Quantiles Times(Method method) const;

 private:
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  int64_t count_ = 0;
  std::vector<std::string> texts_;
  bool measuring_ = false;
  std::array<std::vector<double>, kMethodNames.size()> times_;
};

}  // namespace penstock::load
