#include "server/jobs/request_checks.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/relative_path.h"
#include "engine/base/status.h"
#include "engine/provenance/sha256.h"

namespace penstock::server {
namespace {

constexpr size_t kMaxQuoted = 80;
constexpr char kJobIdRule[] = "4 to 63 characters of a-z, 0-9 and -, the first a letter";
constexpr char kSweepIdRule[] = "4 to 59 characters of a-z, 0-9 and -, the first a letter";

absl::Status Invalid(const std::string& field, const std::string& found,
                     const std::string& expected) {
  const std::string shown = absl::CHexEscape(found.substr(0, kMaxQuoted));
  return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
               absl::StrCat(field, " is '", shown, found.size() > kMaxQuoted ? "..." : "",
                            "'; expected ", expected),
               {{"field", field}, {"found", shown}, {"expected", expected}});
}

bool IsJobId(const std::string& id) {
  const auto allowed = [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-';
  };
  return id.size() >= 4 && id.size() <= 63 &&
         absl::ascii_islower(static_cast<unsigned char>(id[0])) &&
         std::all_of(id.begin(), id.end(), allowed);
}

bool IsSweepId(const std::string& id) { return IsJobId(id) && id.size() <= 59; }

bool IsLabelKey(const std::string& key) {
  const auto allowed = [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-' || c == '_';
  };
  return !key.empty() && key.size() <= 63 && std::all_of(key.begin(), key.end(), allowed);
}

bool HasControl(const std::string& text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
}

}  // namespace

absl::Status CheckJobId(const std::string& id, const std::string& field) {
  if (IsJobId(id)) return absl::OkStatus();
  return Invalid(field, id, kJobIdRule);
}

absl::Status CheckSweepId(const std::string& id, const std::string& field) {
  if (IsSweepId(id)) return absl::OkStatus();
  return Invalid(field, id, kSweepIdRule);
}

absl::Status CheckSweepName(const std::string& name, const std::string& field) {
  if (absl::StartsWith(name, "sweeps/") && IsSweepId(name.substr(7))) return absl::OkStatus();
  return Invalid(field, name, absl::StrCat("sweeps/{id}, id being ", kSweepIdRule));
}

absl::Status CheckJobName(const std::string& name, const std::string& field) {
  if (absl::StartsWith(name, "jobs/") && IsJobId(name.substr(5))) return absl::OkStatus();
  return Invalid(field, name, absl::StrCat("jobs/{id}, id being ", kJobIdRule));
}

absl::StatusOr<CheckpointName> ParseCheckpointName(const std::string& name,
                                                   const std::string& field) {
  constexpr absl::string_view kMiddle = "/checkpoints/";
  const size_t middle = name.find(kMiddle.data());
  CheckpointName parsed;
  if (middle != std::string::npos) {
    parsed.job = name.substr(0, middle);
    const std::string step = name.substr(middle + kMiddle.size());
    if (CheckJobName(parsed.job, field).ok() && absl::SimpleAtoi(step, &parsed.step) &&
        parsed.step >= 0 && absl::StrCat(parsed.step) == step) {
      return parsed;
    }
  }
  return Invalid(field, name, "jobs/{id}/checkpoints/{step}");
}

absl::Status CheckUploadName(const std::string& name, const std::string& field) {
  if (absl::StartsWith(name, "uploads/") && IsJobId(name.substr(8))) return absl::OkStatus();
  return Invalid(field, name, "uploads/{id}");
}

namespace {

constexpr int kMaxUploadFiles = 10'000;
// A reply has them too, and must stay within the 4 MiB that clients take.
constexpr int64_t kMaxAnnouncedBytes = int64_t{2} << 20;

absl::Status CheckUploadFile(const v1::FileEntry& file, const std::string& field) {
  if (!IsRelativePath(file.path())) {
    return Invalid(field + ".path", file.path(), kRelativePathRule);
  }
  if (file.bytes() < 0) return Invalid(field + ".bytes", absl::StrCat(file.bytes()), "0 or more");
  if (!BytesOfHex(file.sha256(), sizeof(Sha256Digest))) {
    return Invalid(field + ".sha256", file.sha256(), "64 digits of lower-case hexadecimal");
  }
  return absl::OkStatus();
}

// Two files of one name, or a file where another one has a directory.
absl::Status CheckDistinct(const v1::CreateUploadRequest& request) {
  std::set<absl::string_view> files, directories;
  for (const v1::FileEntry& file : request.files()) {
    const std::string& path = file.path();
    if (!files.insert(path).second) return Invalid("files", path, "each path once");
    for (size_t slash = path.find('/'); slash != std::string::npos;
         slash = path.find('/', slash + 1)) {
      directories.insert(absl::string_view(path).substr(0, slash));
    }
  }
  for (const absl::string_view directory : directories) {
    if (files.contains(directory)) {
      return Invalid("files", std::string(directory), "a file or a directory, not both");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> CheckUploadFiles(const v1::CreateUploadRequest& request) {
  const std::string count = absl::StrCat(request.files_size(), " files");
  if (request.files_size() < 1 || request.files_size() > kMaxUploadFiles) {
    return Invalid("files", count, absl::StrCat("1 to ", kMaxUploadFiles));
  }
  if (static_cast<int64_t>(request.ByteSizeLong()) > kMaxAnnouncedBytes) {
    return Invalid("files", absl::StrCat(count, " of ", request.ByteSizeLong(), " bytes"),
                   absl::StrCat("names and hashes of at most ", kMaxAnnouncedBytes, " bytes"));
  }
  int64_t bytes = 0;
  for (int i = 0; i < request.files_size(); ++i) {
    PENSTOCK_RETURN_IF_ERROR(CheckUploadFile(request.files(i), absl::StrCat("files[", i, "]")));
    if (__builtin_add_overflow(bytes, int64_t{request.files(i).bytes()}, &bytes)) {
      return Invalid("files", "more than 2^63 bytes", "less than that");
    }
  }
  PENSTOCK_RETURN_IF_ERROR(CheckDistinct(request));
  return bytes;
}

absl::Status CheckRequestId(const std::string& id) {
  const bool printable = std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_isprint(static_cast<unsigned char>(c));
  });
  if (id.size() <= 128 && printable) return absl::OkStatus();
  return Invalid("request_id", id, "at most 128 printable ASCII characters, best a UUID");
}

absl::Status CheckUserName(const std::string& name, const std::string& field) {
  const auto allowed = [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  };
  if (!name.empty() && name.size() <= 63 &&
      absl::ascii_islower(static_cast<unsigned char>(name[0])) &&
      std::all_of(name.begin(), name.end(), allowed)) {
    return absl::OkStatus();
  }
  return Invalid(field, name, "1 to 63 characters of a-z, 0-9, ., _ and -, the first a letter");
}

absl::Status CheckText(const std::string& text, const std::string& field, size_t max_bytes) {
  if (text.size() <= max_bytes && !HasControl(text)) return absl::OkStatus();
  return Invalid(field, text,
                 absl::StrCat("at most ", max_bytes, " bytes without control characters"));
}

absl::Status CheckNaming(const v1::JobSpec& spec) {
  if (spec.display_name().size() > 200 || HasControl(spec.display_name())) {
    return Invalid("spec.display_name", spec.display_name(),
                   "at most 200 bytes without control characters");
  }
  if (spec.labels_size() > 64) {
    return Invalid("spec.labels", absl::StrCat(spec.labels_size(), " labels"), "at most 64");
  }
  for (const auto& [key, value] : spec.labels()) {
    if (!IsLabelKey(key)) {
      return Invalid("spec.labels", key, "keys of 1 to 63 characters of a-z, 0-9, _ and -");
    }
    if (value.size() > 63) {
      return Invalid(absl::StrCat("spec.labels.", key), value, "at most 63 bytes");
    }
  }
  return absl::OkStatus();
}

}  // namespace penstock::server
