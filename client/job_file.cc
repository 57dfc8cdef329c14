#include "client/job_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "proto/message_file.h"

namespace penstock::client {
namespace {

std::string Absolute(const std::string& path, const std::filesystem::path& base) {
  if (path.empty() || path[0] == '/') return path;
  return (base / path).lexically_normal().string();
}

void MakePathsAbsolute(const std::filesystem::path& base,
                       google::protobuf::RepeatedPtrField<v1::DatasetSpec>& datasets) {
  for (v1::DatasetSpec& dataset : datasets) {
    for (std::string& path : *dataset.mutable_paths()) path = Absolute(path, base);
    if (!dataset.has_dataset_info()) continue;
    v1::DatasetInfoEntry& entry = *dataset.mutable_dataset_info();
    entry.set_path(Absolute(entry.path(), base));
  }
}

void MakePathsAbsolute(const std::filesystem::path& base, v1::JobSpec& spec) {
  if (spec.model().has_directory()) {
    *spec.mutable_model()->mutable_directory() = Absolute(spec.model().directory(), base);
  }
  if (spec.model().random().has_config_path()) {
    v1::RandomModel& random = *spec.mutable_model()->mutable_random();
    *random.mutable_config_path() = Absolute(random.config_path(), base);
  }
  if (spec.has_data()) {
    v1::DataSpec& data = *spec.mutable_data();
    for (std::string& path : *data.mutable_paths()) path = Absolute(path, base);
    MakePathsAbsolute(base, *data.mutable_datasets());
    if (data.chat().has_template_path()) {
      data.mutable_chat()->set_template_path(Absolute(data.chat().template_path(), base));
    }
  }
  if (spec.has_evaluation()) {
    v1::EvaluationSpec& evaluation = *spec.mutable_evaluation();
    for (std::string& path : *evaluation.mutable_validation_paths()) path = Absolute(path, base);
    MakePathsAbsolute(base, *evaluation.mutable_validation_datasets());
  }
  if (!spec.output().directory().empty()) {
    *spec.mutable_output()->mutable_directory() = Absolute(spec.output().directory(), base);
  }
}

absl::StatusOr<std::string> ReadStandardInput() {
  std::string text;
  char buffer[4096];
  while (static_cast<int64_t>(text.size()) <= kMaxMessageTextBytes) {
    const ssize_t got = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return Error(absl::StatusCode::kUnavailable, reason::kIoError,
                   absl::StrCat("standard input cannot be read: ", std::strerror(errno)));
    }
    if (got == 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

// `job` is the message, or lies in it: its paths are those that are made absolute.
absl::Status ReadFile(const std::string& file, google::protobuf::Message& message,
                      v1::JobSpec& job) {
  if (file == "-") {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadStandardInput());
    return ParseMessageText(text, "standard input", &message);
  }
  if (file.empty()) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(ReadMessageFile(file, &message));
  std::error_code ignored;
  MakePathsAbsolute((std::filesystem::current_path(ignored) / file).parent_path(), job);
  return absl::OkStatus();
}

std::vector<std::string> SplitValues(const std::string& text) {
  std::vector<std::string> values(1);
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (c == ',' && depth == 0 && quote == 0) {
      values.emplace_back();
      continue;
    }
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (depth > 0 && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    }
    values.back() += c;
  }
  return values;
}

absl::StatusOr<v1::SweepAxis> ParseAxis(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return Error(
        absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
        absl::StrCat("--over: found \"", text, "\", expected key.path=value,value, such as ",
                     "optimizer.learning_rate=1e-5,3e-5"));
  }
  v1::SweepAxis axis;
  axis.set_field(text.substr(0, equals));
  for (std::string& value : SplitValues(text.substr(equals + 1))) axis.add_values(std::move(value));
  return axis;
}

absl::Status ApplySetting(const std::string& setting, v1::JobSpec& spec) {
  const size_t equals = setting.find('=');
  if (equals == std::string::npos || equals == 0) {
    return Error(
        absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
        absl::StrCat("--set: found \"", absl::CHexEscape(setting),
                     "\", expected key.path=value, such as ", "optimizer.learning_rate=1e-4"));
  }
  return SetMessageField(setting.substr(0, equals), setting.substr(equals + 1), "--set", &spec);
}

}  // namespace

std::string AbsolutePath(const std::string& path) {
  std::error_code ignored;
  return Absolute(path, std::filesystem::current_path(ignored));
}

absl::StatusOr<v1::JobSpec> LoadJobFile(const std::string& file,
                                        const std::vector<std::string>& settings) {
  v1::JobSpec spec;
  PENSTOCK_RETURN_IF_ERROR(ReadFile(file, spec, spec));
  return ChangeJobSpec(std::move(spec), settings);
}

absl::StatusOr<v1::SweepSpec> LoadSweepFile(const std::string& file,
                                            const std::vector<std::string>& axes,
                                            const std::vector<std::string>& settings) {
  v1::SweepSpec sweep;
  if (axes.empty()) {
    PENSTOCK_RETURN_IF_ERROR(ReadFile(file, sweep, *sweep.mutable_job()));
    PENSTOCK_ASSIGN_OR_RETURN(*sweep.mutable_job(), ChangeJobSpec(sweep.job(), settings));
    return sweep;
  }
  PENSTOCK_ASSIGN_OR_RETURN(*sweep.mutable_job(), LoadJobFile(file, settings));
  for (const std::string& axis : axes) {
    PENSTOCK_ASSIGN_OR_RETURN(*sweep.add_axes(), ParseAxis(axis));
  }
  return sweep;
}

absl::StatusOr<v1::JobSpec> ChangeJobSpec(v1::JobSpec spec,
                                          const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) {
    PENSTOCK_RETURN_IF_ERROR(ApplySetting(setting, spec));
  }
  std::error_code ignored;
  MakePathsAbsolute(std::filesystem::current_path(ignored), spec);
  return spec;
}

}  // namespace penstock::client
