#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/data/row_error.h"
#include "engine/data/source.h"

namespace penstock {

// What a bad row does: ends the reading, or is told to the sink, up to DataSource::max_bad_rows of
// all files together.
class BadRows {
 public:
  // Both outlive it.
  BadRows(const DataSource& source, DocumentSink& sink) : source_(source), sink_(sink) {}

  // DATA_INVALID with file, line and column if this ends the reading.
  absl::Status Add(const SourceLocation& location, int64_t column, const std::string& message);
  // Of any policy: skipped and counted.
  absl::Status Skip(const SourceLocation& location, int64_t column, const std::string& message);

 private:
  absl::Status Refuse(const SourceLocation& location, int64_t column, const std::string& message);

  const DataSource& source_;
  DocumentSink& sink_;
  int64_t skipped_ = 0;
};

}  // namespace penstock
