#include "server/jobs/queue_order.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/jobs/device_use.h"
#include "server/jobs/run_time.h"

namespace penstock::server {
namespace {

// What a job is counted as that nobody knows the time of.
constexpr double kUnknownSeconds = 3600;

std::string OwnerName(const std::string& owner) {
  return owner.empty() ? "the daemon's own user" : owner;
}

// The jobs of one rank, in the order of fair share. `jobs` are indices into snapshot.queued,
// ascending: by age.
class SharedRank {
 public:
  SharedRank(const ScheduleSnapshot& snapshot, std::vector<size_t> jobs) : snapshot_(snapshot) {
    for (const size_t job : jobs) {
      const QueuedJob& queued = snapshot.queued[job];
      waiting_[queued.owner].push_back(job);
      used_[User(queued)] = queued.owner_used_seconds;
    }
  }

  void AppendTo(std::vector<QueuePlace>& order) {
    // Who has used least, then whose job is oldest.
    std::set<std::tuple<double, size_t, std::string>> next;
    std::map<std::string, size_t> first;  // of each owner's jobs, the first that has no place
    const auto enter = [&](const std::string& owner) {
      const std::vector<size_t>& jobs = waiting_.at(owner);
      const size_t at = first[owner];
      if (at == jobs.size()) return;
      next.emplace(used_.at(User(snapshot_.queued[jobs[at]])), jobs[at], owner);
    };
    for (const auto& [owner, jobs] : waiting_) enter(owner);
    while (!next.empty()) {
      const auto [used, job, owner] = *next.begin();
      next.erase(next.begin());
      const QueuedJob& queued = snapshot_.queued[job];
      order.push_back({.job = &queued, .passed = Passed(job, owner, used)});
      placed_[owner].push_back(job);
      used_[User(queued)] +=
          queued.seconds ? static_cast<double>(*queued.seconds) : kUnknownSeconds;
      ++first[owner];
      enter(owner);
    }
  }

 private:
  static DeviceUser User(const QueuedJob& job) {
    return {.owner = job.owner, .kind = job.device.kind};
  }

  std::string Passed(size_t job, const std::string& owner, double used) const {
    size_t newer = 0;
    std::vector<std::string> owners;
    for (const auto& [other, jobs] : placed_) {
      const auto count =
          static_cast<size_t>(jobs.end() - std::upper_bound(jobs.begin(), jobs.end(), job));
      if (count == 0 || other == owner) continue;
      newer += count;
      owners.push_back(OwnerName(other));
    }
    if (newer == 0) return "";
    return absl::StrCat(newer, newer == 1 ? " newer job of " : " newer jobs of ",
                        absl::StrJoin(owners, ", "), newer == 1 ? " comes" : " come",
                        " first by fair share: ", OwnerName(owner),
                        " has used, or will by then have used, ",
                        DurationText(static_cast<int64_t>(used)), " of device time of late");
  }

  const ScheduleSnapshot& snapshot_;
  std::map<std::string, std::vector<size_t>> waiting_, placed_;  // by owner
  std::map<DeviceUser, double> used_;                            // and will have, by what is placed
};

}  // namespace

std::vector<QueuePlace> QueueOrder(const ScheduleSnapshot& snapshot) {
  std::map<int, std::vector<size_t>, std::greater<>> ranks;
  for (size_t job = 0; job < snapshot.queued.size(); ++job) {
    const QueuedJob& queued = snapshot.queued[job];
    ranks[Rank(queued.priority, queued.waited_seconds, snapshot.aging_seconds)].push_back(job);
  }
  std::vector<QueuePlace> order;
  for (auto& [rank, jobs] : ranks) {
    if (rank > v1::PRIORITY_HIGH || snapshot.fair_share_half_life_seconds == 0) {
      for (const size_t job : jobs) order.push_back({.job = &snapshot.queued[job]});
    } else {
      SharedRank(snapshot, std::move(jobs)).AppendTo(order);
    }
  }
  return order;
}

}  // namespace penstock::server
