#include "server/spec/spec_fields.h"

#include <sys/stat.h>

#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/base/version.h"
#include "engine/train/rooted_file.h"
#include "google/protobuf/unknown_field_set.h"
#include "proto/message_print.h"

namespace penstock::server {
namespace {

constexpr size_t kMaxPathBytes = 4096;
constexpr size_t kMaxDisplayNameBytes = 200;
constexpr size_t kMaxLabels = 64;
constexpr size_t kMaxLabelBytes = 63;

std::string Number(double value) { return absl::StrFormat("%.10g", value); }

bool HasControlCharacter(const std::string& text) {
  for (const char c : text) {
    if (absl::ascii_iscntrl(c)) return true;
  }
  return false;
}

bool IsLabelKey(const std::string& key) {
  if (key.empty() || key.size() > kMaxLabelBytes) return false;
  for (const char c : key) {
    if (!absl::ascii_islower(c) && !absl::ascii_isdigit(c) && c != '_' && c != '-') return false;
  }
  return true;
}

}  // namespace

absl::Status FieldError(const std::string& field, const std::string& found,
                        const std::string& expected) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kSpecInvalid,
               absl::StrCat(field, ": found ", found, ", expected ", expected),
               {{"field", field}, {"found", found}, {"expected", expected}});
}

absl::Status UnusedFieldError(const std::string& field, const std::string& because) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kSpecInvalid,
               absl::StrCat(field, ": has no effect ", because, "; remove it"),
               {{"field", field}, {"fix", "remove it"}});
}

absl::Status AtField(const absl::Status& status, const std::string& field) {
  ErrorMetadata metadata = MetadataOf(status);
  metadata["field"] = field;
  return Error(status.code(), ReasonOf(status),
               absl::StrCat(field, ": ", std::string(status.message())), metadata);
}

absl::Status CheckEnum(const std::string& field, const google::protobuf::EnumDescriptor* type,
                       int value) {
  if (type->FindValueByNumber(value) != nullptr) return absl::OkStatus();
  std::string known;
  for (int i = 1; i < type->value_count(); ++i) {
    absl::StrAppend(&known, i == 1 ? "" : ", ", ShortEnumName(*type, type->value(i)->number()));
  }
  return FieldError(field, absl::StrCat("the unknown value ", value),
                    absl::StrCat("one of ", known));
}

absl::Status CheckKnownFields(const std::string& field, const google::protobuf::Message& message) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const google::protobuf::UnknownFieldSet& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    return FieldError(
        field.empty() ? "spec" : field,
        absl::StrCat("the unknown field number ", unknown.field(0).number()),
        absl::StrCat("the fields that penstockd ", Version(),
                     " has; a newer client sends more. Use a client of this version, or "
                     "upgrade the daemon"));
  }
  std::vector<const FieldDescriptor*> set;
  reflection.ListFields(message, &set);
  for (const FieldDescriptor* member : set) {
    if (member->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const std::string path = absl::StrCat(field, field.empty() ? "" : ".", member->name());
    const int count = member->is_repeated() ? reflection.FieldSize(message, member) : 1;
    for (int i = 0; i < count; ++i) {
      PENSTOCK_RETURN_IF_ERROR(CheckKnownFields(
          path, member->is_repeated() ? reflection.GetRepeatedMessage(message, member, i)
                                      : reflection.GetMessage(message, member)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckInteger(const std::string& field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return FieldError(field, absl::StrCat(value),
                    absl::StrCat("an integer from ", low, " to ", high));
}

absl::Status CheckDouble(const std::string& field, double value, const DoubleRange& range) {
  const bool above = range.low_allowed ? value >= range.low : value > range.low;
  const bool below = range.high_allowed ? value <= range.high : value < range.high;
  if (above && below) return absl::OkStatus();
  return FieldError(
      field, Number(value),
      absl::StrCat("a number from ", Number(range.low), range.low_allowed ? "" : " (not itself)",
                   " to ", Number(range.high), range.high_allowed ? "" : " (not itself)"));
}

absl::Status CheckDisplayName(const std::string& field, const std::string& text) {
  if (text.size() > kMaxDisplayNameBytes) {
    return FieldError(field, absl::StrCat(text.size(), " bytes"),
                      absl::StrCat("at most ", kMaxDisplayNameBytes, " bytes"));
  }
  if (HasControlCharacter(text)) {
    return FieldError(field, "a control character", "one line of text");
  }
  return absl::OkStatus();
}

absl::Status CheckLabels(const std::string& field,
                         const google::protobuf::Map<std::string, std::string>& labels) {
  if (labels.size() > kMaxLabels) {
    return FieldError(field, absl::StrCat(labels.size(), " labels"),
                      absl::StrCat("at most ", kMaxLabels));
  }
  for (const auto& [key, value] : labels) {
    if (!IsLabelKey(key)) {
      return FieldError(field, absl::StrCat("the key \"", key.substr(0, kMaxLabelBytes), "\""),
                        "keys of 1 to 63 characters of a-z, 0-9, _ and -");
    }
    if (value.size() > kMaxLabelBytes || HasControlCharacter(value)) {
      return FieldError(absl::StrCat(field, ".", key),
                        absl::StrCat("a value of ", value.size(), " bytes"),
                        "at most 63 bytes without control characters");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CheckPath(const std::string& field, const std::string& path,
                                      const std::vector<std::string>& allowed_roots) {
  if (path.empty()) return FieldError(field, "nothing", "an absolute path");
  if (path.size() > kMaxPathBytes || path.find('\0') != std::string::npos) {
    return FieldError(field, absl::StrCat("a path of ", path.size(), " bytes"),
                      absl::StrCat("at most ", kMaxPathBytes, " bytes and no NUL"));
  }
  if (path[0] != '/') {
    return FieldError(field, absl::StrCat("\"", path, "\""),
                      "an absolute path: the daemon has no working directory of yours");
  }
  absl::StatusOr<std::string> resolved = CheckUnderRoots(path, allowed_roots);
  if (!resolved.ok()) return AtField(resolved.status(), field);
  return resolved;
}

absl::StatusOr<std::string> ReadFileAt(const std::string& field, const std::string& path,
                                       const std::vector<std::string>& allowed_roots,
                                       int64_t max_bytes) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string resolved, CheckPath(field, path, allowed_roots));
  const std::filesystem::path file(resolved);
  absl::StatusOr<RootedDirectory> directory = RootedDirectory::Open(file.parent_path().string());
  if (!directory.ok()) return AtField(directory.status(), field);
  absl::StatusOr<ReadableFile> opened = directory->OpenFile(file.filename().string());
  if (!opened.ok()) return AtField(opened.status(), field);
  absl::StatusOr<std::string> text = opened->ReadAll(max_bytes);
  if (!text.ok()) return AtField(text.status(), field);
  return text;
}

absl::StatusOr<std::string> CheckNewPath(const std::string& field, const std::string& path,
                                         const std::vector<std::string>& allowed_roots) {
  PENSTOCK_ASSIGN_OR_RETURN(std::string resolved, CheckPath(field, path, allowed_roots));
  struct stat info;
  if (lstat(resolved.c_str(), &info) == 0) {
    return Error(absl::StatusCode::kAlreadyExists, reason::kOutputExists,
                 absl::StrCat(field, ": ", resolved, " exists, expected a path where nothing is; ",
                              "choose another one or move it away"),
                 {{"field", field}, {"path", resolved}});
  }
  const std::string parent = std::filesystem::path(resolved).parent_path().string();
  if (stat(parent.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return FieldError(field, absl::StrCat("a path in ", parent, ", which is no directory"),
                      "a path in a directory that exists; create it first");
  }
  return resolved;
}

}  // namespace penstock::server
