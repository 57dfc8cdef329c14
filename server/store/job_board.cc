#include "server/store/job_board.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace penstock::server {

v1::Job WithLivePart(v1::Job job, const LivePart& live) {
  if (live.progress) *job.mutable_progress() = *live.progress;
  if (job.state() != v1::JOB_STATE_QUEUED) return job;
  job.set_queue_position(live.queue_position);
  // Why it was put back (state_reason of the row) comes before what it waits for.
  if (job.state_reason() == v1::STATE_REASON_UNSPECIFIED) {
    job.set_state_reason(live.wait_reason);
    job.set_state_message(live.wait_message);
  } else if (!live.wait_message.empty()) {
    job.set_state_message(absl::StrCat(job.state_message(), "; ", live.wait_message));
  }
  return job;
}

JobKeys KeysOf(const v1::Job& job) {
  return {.name = job.name(),
          .state = job.state(),
          .owner = job.owner(),
          .sweep = job.sweep_point().sweep()};
}

void JobBoard::Put(int64_t row, JobKeys keys, std::string message) {
  auto shared = std::make_shared<const std::string>(std::move(message));
  absl::MutexLock lock(&mutex_);
  rows_[keys.name] = row;
  by_row_[row] = {.keys = std::move(keys), .message = std::move(shared), .live = nullptr};
}

void JobBoard::Remove(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  const auto found = rows_.find(name);
  if (found == rows_.end()) return;
  by_row_.erase(found->second);
  rows_.erase(found);
}

void JobBoard::SetLive(int64_t row, LivePart live) {
  auto shared = std::make_shared<const LivePart>(std::move(live));
  absl::MutexLock lock(&mutex_);
  by_row_.at(row).live = std::move(shared);
}

absl::StatusOr<v1::Job> JobBoard::Read(const Entry& entry) {
  v1::Job job;
  if (!job.ParseFromString(*entry.message)) {
    return Error(absl::StatusCode::kDataLoss, reason::kStoreCorrupt,
                 absl::StrCat(entry.keys.name, ": its row in the job store cannot be read"),
                 {{"job", entry.keys.name}});
  }
  return entry.live ? WithLivePart(std::move(job), *entry.live) : std::move(job);
}

absl::StatusOr<v1::Job> JobBoard::Get(const std::string& name) const {
  Entry entry;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = rows_.find(name);
    if (found != rows_.end()) entry = by_row_.at(found->second);
  }
  if (entry.message != nullptr) return Read(entry);
  return Error(absl::StatusCode::kNotFound, reason::kJobNotFound,
               absl::StrCat("there is no ", name, "; ListJobs shows what there is"),
               {{"job", name}});
}

absl::StatusOr<JobPage> JobBoard::List(const JobQuery& query) const {
  JobPage page;
  std::vector<Entry> entries;
  {
    absl::MutexLock lock(&mutex_);
    int64_t bytes = 0;
    const auto begin = std::make_reverse_iterator(by_row_.lower_bound(query.before_row));
    for (auto at = begin; at != by_row_.rend(); ++at) {
      const auto& [row, entry] = *at;
      const auto& states = query.states;
      if (!states.empty() &&
          std::find(states.begin(), states.end(), entry.keys.state) == states.end()) {
        continue;
      }
      if (!query.owner.empty() && entry.keys.owner != query.owner) continue;
      if (!query.sweep.empty() && entry.keys.sweep != query.sweep) continue;
      page.more = static_cast<int64_t>(entries.size()) == query.limit || bytes >= query.max_bytes;
      if (page.more) break;
      bytes += static_cast<int64_t>(entry.message->size());
      page.last_row = row;
      entries.push_back(entry);
    }
  }
  page.jobs.reserve(entries.size());
  for (const Entry& entry : entries) {
    PENSTOCK_ASSIGN_OR_RETURN(v1::Job job, Read(entry));
    page.jobs.push_back(std::move(job));
  }
  return page;
}

}  // namespace penstock::server
