#include "server/store/job_board.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace penstock::server {

void AddLivePart(const LivePart& live, v1::Job& job) {
  if (live.progress) *job.mutable_progress() = *live.progress;
  if (job.state() != v1::JOB_STATE_QUEUED) return;
  job.set_queue_position(live.queue_position);
  // Why it was put back (state_reason of the row) comes before what it waits for.
  if (job.state_reason() == v1::STATE_REASON_UNSPECIFIED) {
    job.set_state_reason(live.wait_reason);
    job.set_state_message(live.wait_message);
  } else if (!live.wait_message.empty()) {
    job.set_state_message(absl::StrCat(job.state_message(), "; ", live.wait_message));
  }
}

JobKeys KeysOf(const v1::Job& job) {
  return {.name = job.name(),
          .state = job.state(),
          .owner = job.owner(),
          .sweep = job.sweep_point().sweep()};
}

// The rows of some states, newest first.
class JobBoard::Walk {
 public:
  explicit Walk(int64_t before_row) : before_row_(before_row) {}

  void Add(const Rows& rows) {
    ways_.push_back({std::make_reverse_iterator(rows.lower_bound(before_row_)), rows.rend()});
  }
  // Null at the end.
  const Rows::value_type* Next() {
    Way* newest = nullptr;
    for (Way& way : ways_) {
      if (way.at == way.end) continue;
      if (newest == nullptr || way.at->first > newest->at->first) newest = &way;
    }
    return newest == nullptr ? nullptr : &*newest->at++;
  }

 private:
  struct Way {
    Rows::const_reverse_iterator at, end;
  };
  const int64_t before_row_;
  std::vector<Way> ways_;
};

void JobBoard::Put(int64_t row, JobKeys keys, std::string message) {
  auto shared = std::make_shared<const std::string>(std::move(message));
  absl::MutexLock lock(&mutex_);
  const Place place{.state = keys.state, .row = row};
  const auto [at, is_new] = places_.try_emplace(keys.name, place);
  if (!is_new) by_state_.at(at->second.state).erase(at->second.row);
  at->second = place;
  by_state_[keys.state][row] = {
      .keys = std::move(keys), .message = std::move(shared), .live = nullptr};
}

void JobBoard::Remove(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  const auto found = places_.find(name);
  if (found == places_.end()) return;
  by_state_.at(found->second.state).erase(found->second.row);
  places_.erase(found);
}

void JobBoard::SetLive(const std::string& name, LivePart live) {
  auto shared = std::make_shared<const LivePart>(std::move(live));
  absl::MutexLock lock(&mutex_);
  const Place& place = places_.at(name);
  by_state_.at(place.state).at(place.row).live = std::move(shared);
}

absl::Status JobBoard::Read(const Entry& entry, v1::Job& job) {
  if (!job.ParseFromString(*entry.message)) {
    return Error(absl::StatusCode::kDataLoss, reason::kStoreCorrupt,
                 absl::StrCat(entry.keys.name, ": its row in the job store cannot be read"),
                 {{"job", entry.keys.name}});
  }
  if (entry.live) AddLivePart(*entry.live, job);
  return absl::OkStatus();
}

absl::StatusOr<v1::Job> JobBoard::Get(const std::string& name) const {
  Entry entry;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = places_.find(name);
    if (found != places_.end()) entry = by_state_.at(found->second.state).at(found->second.row);
  }
  if (entry.message == nullptr) {
    return Error(absl::StatusCode::kNotFound, reason::kJobNotFound,
                 absl::StrCat("there is no ", name, "; ListJobs shows what there is"),
                 {{"job", name}});
  }
  v1::Job job;
  PENSTOCK_RETURN_IF_ERROR(Read(entry, job));
  return job;
}

std::vector<JobBoard::Entry> JobBoard::Find(const JobQuery& query, JobPage& page) const {
  std::vector<Entry> entries;
  int64_t bytes = 0;
  absl::MutexLock lock(&mutex_);
  Walk walk(query.before_row);
  for (const auto& [state, rows] : by_state_) {
    const auto& states = query.states;
    if (states.empty() || std::find(states.begin(), states.end(), state) != states.end()) {
      walk.Add(rows);
    }
  }
  while (const Rows::value_type* next = walk.Next()) {
    const auto& [row, entry] = *next;
    if (!query.owner.empty() && entry.keys.owner != query.owner) continue;
    if (!query.sweep.empty() && entry.keys.sweep != query.sweep) continue;
    page.more = static_cast<int64_t>(entries.size()) == query.limit || bytes >= query.max_bytes;
    if (page.more) break;
    bytes += static_cast<int64_t>(entry.message->size());
    page.last_row = row;
    entries.push_back(entry);
  }
  return entries;
}

absl::StatusOr<JobPage> JobBoard::List(const JobQuery& query,
                                       google::protobuf::RepeatedPtrField<v1::Job>& jobs) const {
  JobPage page;
  for (const Entry& entry : Find(query, page)) {
    v1::Job& job = *jobs.Add();
    PENSTOCK_RETURN_IF_ERROR(Read(entry, job));
    if (job.has_plan()) job.mutable_plan()->clear_phases();
  }
  return page;
}

}  // namespace penstock::server
