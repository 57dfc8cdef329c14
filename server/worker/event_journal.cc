#include "server/worker/event_journal.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace penstock::server {

EventJournal::EventJournal(std::string path) : path_(std::move(path)) {}

absl::StatusOr<std::unique_ptr<EventJournal>> EventJournal::Create(const std::string& path) {
  if (access(path.c_str(), F_OK) == 0) {
    return Error(absl::StatusCode::kAlreadyExists, reason::kInternal,
                 absl::StrCat(path, ": exists, so this attempt has had a worker before"));
  }
  std::unique_ptr<EventJournal> journal(new EventJournal(path));
  absl::MutexLock lock(&journal->mutex_);
  PENSTOCK_RETURN_IF_ERROR(journal->Restart());
  return journal;
}

absl::Status EventJournal::Restart() {
  writer_.reset();
  reader_.reset();
  file_bytes_ = 0;
  if (unlink(path_.c_str()) != 0 && errno != ENOENT) {
    return Error(absl::StatusCode::kUnavailable, reason::kIoError,
                 absl::StrCat(path_, ": cannot be removed: ", std::strerror(errno)),
                 {{"file", path_}});
  }
  PENSTOCK_ASSIGN_OR_RETURN(writer_, SegmentWriter::Open(path_));
  reader_ = std::make_unique<SegmentReader>(path_);
  return absl::OkStatus();
}

void EventJournal::Append(internal::WorkerEvent event) {
  absl::MutexLock lock(&mutex_);
  event.set_number(last_number_ + 1);
  // Once something could not be written, what follows must queue behind it.
  if (unwritten_.empty() && writer_) {
    const std::string record = event.SerializeAsString();
    if (writer_->Append(record).ok()) {
      file_bytes_ += static_cast<int64_t>(record.size());
      last_number_ = event.number();
      return;
    }
  }
  if (event.has_metrics() && unwritten_.size() >= kMaxEventsInMemory) {
    ++dropped_;
    return;
  }
  last_number_ = event.number();
  unwritten_.push_back(std::move(event));
}

namespace {

bool BatchIsFull(size_t events, int64_t bytes) {
  return static_cast<int64_t>(events) >= EventJournal::kMaxBatchEvents ||
         bytes >= EventJournal::kMaxBatchBytes;
}

}  // namespace

void EventJournal::FillBatch() {
  int64_t bytes = 0;
  for (const internal::WorkerEvent& event : batch_) {
    bytes += static_cast<int64_t>(event.ByteSizeLong());
  }
  while (!BatchIsFull(batch_.size(), bytes) && reader_ != nullptr) {
    absl::StatusOr<std::optional<std::string>> record = reader_->Next();
    internal::WorkerEvent event;
    if (!record.ok() || !*record || !event.ParseFromString(**record)) break;
    bytes += static_cast<int64_t>(event.ByteSizeLong());
    batch_.push_back(std::move(event));
  }
  while (!BatchIsFull(batch_.size(), bytes) && !unwritten_.empty()) {
    // The next in order, or the file still holds what comes before.
    const uint64_t expected = batch_.empty() ? acknowledged_ + 1 : batch_.back().number() + 1;
    if (unwritten_.front().number() != expected) break;
    bytes += static_cast<int64_t>(unwritten_.front().ByteSizeLong());
    batch_.push_back(std::move(unwritten_.front()));
    unwritten_.pop_front();
  }
}

std::vector<internal::WorkerEvent> EventJournal::Batch() {
  absl::MutexLock lock(&mutex_);
  FillBatch();
  return {batch_.begin(), batch_.end()};
}

void EventJournal::Acknowledge(uint64_t number) {
  absl::MutexLock lock(&mutex_);
  while (!batch_.empty() && batch_.front().number() <= number) batch_.pop_front();
  acknowledged_ = std::max(acknowledged_, std::min(number, last_number_));
  const bool all = acknowledged_ == last_number_;
  // A file that cannot be started anew goes on growing, which harms nothing yet.
  if (all && (file_bytes_ >= kRestartBytes || !writer_)) (void)Restart();
}

bool EventJournal::HasPending() const {
  absl::MutexLock lock(&mutex_);
  return acknowledged_ < last_number_;
}

uint64_t EventJournal::last_number() const {
  absl::MutexLock lock(&mutex_);
  return last_number_;
}

int64_t EventJournal::TakeDropped() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(dropped_, 0);
}

}  // namespace penstock::server
