// Metric points as TensorBoard reads them: an events.out.tfevents file is TFRecords, each an Event
// of tensorflow/core/util/event.proto, of which a few fields are enough and are written here by
// hand.
//
//   record   u64 length, u32 masked crc32c of these 8 bytes, bytes, u32 masked crc32c of the bytes
//   file     Event{file_version "brain.Event:2"}, Event{session_log START}, an Event for each point
//
// The START makes TensorBoard forget what earlier files of the directory say of its step and those
// after it: what an attempt trains again supersedes what the one before had trained.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"

namespace penstock::server {

std::string TfRecord(std::string_view bytes);

// The first two records of a file whose first point is `point`.
std::string EventFileHead(const v1::StepMetrics& point);
// One record.
std::string EventOf(const v1::StepMetrics& point);

// What of a file is whole records: how many, and the bytes they take. No file: none. Unavailable /
// IO_ERROR if it cannot be read.
struct WholeRecords {
  int64_t count = 0;
  int64_t bytes = 0;
};
absl::StatusOr<WholeRecords> CountTfRecords(const std::string& path);

}  // namespace penstock::server
