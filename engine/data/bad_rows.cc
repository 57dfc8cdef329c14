#include "engine/data/bad_rows.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace penstock {

absl::Status BadRows::Add(const SourceLocation& location, int64_t column,
                          const std::string& message) {
  if (source_.on_bad_row == BadRowPolicy::kSkip) return Skip(location, column, message);
  return Refuse(location, column,
                absl::StrCat(message, "; correct the row, or set on_bad_row to SKIP"));
}

absl::Status BadRows::Skip(const SourceLocation& location, int64_t column,
                           const std::string& message) {
  if (++skipped_ > source_.max_bad_rows) {
    return Refuse(location, column,
                  absl::StrCat(message, "; this is bad row ", skipped_, ", max_bad_rows allows ",
                               source_.max_bad_rows, "; correct the file, or raise max_bad_rows"));
  }
  return sink_.Note({NoteKind::kBadRow, location, column, message});
}

absl::Status BadRows::Refuse(const SourceLocation& location, int64_t column,
                             const std::string& message) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid,
               absl::StrCat(ToText(location, source_.paths), ":", column, ": ", message),
               {{"path", source_.paths[location.file]},
                {"line", absl::StrCat(location.line)},
                {"column", absl::StrCat(column)}});
}

}  // namespace penstock
