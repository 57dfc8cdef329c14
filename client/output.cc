#include "client/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "engine/base/status.h"
#include "google/protobuf/util/json_util.h"
#include "proto/message_print.h"
#include "server/status_proto.h"

namespace penstock::client {
namespace {

// Whether a byte of UTF-8 goes on with the character before it.
bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Characters, not bytes: good enough for the names that fit a table.
size_t Width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !IsContinuation(c); }));
}

bool IsNumeric(const std::string& text) {
  return !text.empty() && (absl::ascii_isdigit(text[0]) || text == "-");
}

}  // namespace

std::string Printable(absl::string_view text) {
  std::string printable(text);
  for (char& c : printable) {
    if (absl::ascii_iscntrl(c) && c != '\t') c = '?';
  }
  return printable;
}

std::string Table::ToText() const {
  std::vector<size_t> widths(rows_[0].size(), 0);
  std::vector<bool> numeric(rows_[0].size(), rows_.size() > 1);
  for (size_t r = 0; r < rows_.size(); ++r) {
    for (size_t c = 0; c < widths.size(); ++c) {
      widths[c] = std::max(widths[c], Width(rows_[r][c]));
      if (r > 0 && !IsNumeric(rows_[r][c])) numeric[c] = false;
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    std::string line;
    for (size_t c = 0; c < widths.size(); ++c) {
      const std::string padding(widths[c] - Width(row[c]), ' ');
      const std::string cell = Printable(row[c]);
      absl::StrAppend(&line, c == 0 ? "" : "  ", numeric[c] ? padding : "", cell,
                      numeric[c] ? "" : padding);
    }
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

void Facts::Add(std::string key, std::string value) {
  if (!value.empty()) facts_.emplace_back(std::move(key), std::move(value));
}

std::string Facts::ToText() const {
  size_t width = 0;
  for (const auto& [key, value] : facts_) width = std::max(width, key.size());
  std::string text;
  for (const auto& [key, value] : facts_) {
    absl::StrAppend(&text, key, ":", std::string(width - key.size() + 2, ' '), Printable(value),
                    "\n");
  }
  return text;
}

std::string FormatMessage(Format format, const google::protobuf::Message& message) {
  return format == Format::kYaml ? MessageToYaml(message) : MessageToJson(message);
}

std::string FormatStreamed(Format format, const google::protobuf::Message& message) {
  if (format == Format::kYaml) return absl::StrCat("---\n", MessageToYaml(message));
  std::string line;
  const auto status = google::protobuf::util::MessageToJsonString(message, &line);
  return status.ok() ? line + "\n" : MessageToJson(message);
}

std::string FormatError(Format format, const absl::Status& status) {
  if (format != Format::kTable) return FormatMessage(format, ToStatusProto(status));
  const ErrorMetadata metadata = MetadataOf(status);
  std::string text = absl::StrCat("error: ", Printable(std::string(status.message())), "\n");
  const std::string reason = ReasonOf(status);
  absl::StrAppend(&text, "  reason: ", Printable(reason), "\n");
  for (const char* key : {"fix", "request_id"}) {
    if (const auto found = metadata.find(key); found != metadata.end()) {
      absl::StrAppend(&text, "  ", key, ": ", Printable(found->second), "\n");
    }
  }
  return text;
}

std::string FormatDuration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  const auto total = static_cast<int64_t>(std::min(seconds, 1e12) + 0.5);
  const int64_t minutes = total / 60;
  if (minutes >= 60) return absl::StrFormat("%dh%02dm", minutes / 60, minutes % 60);
  if (minutes > 0) return absl::StrFormat("%dm%02ds", minutes, total % 60);
  return absl::StrCat(total, "s");
}

std::string FormatCount(double count) {
  static constexpr struct {
    double unit;
    const char* suffix;
  } kUnits[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& unit : kUnits) {
    if (count >= unit.unit) return absl::StrFormat("%.1f%s", count / unit.unit, unit.suffix);
  }
  return absl::StrFormat("%.0f", count);
}

std::string FormatLoss(double loss) { return absl::StrFormat("%.4f", loss); }

std::string FormatTime(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0) return "";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixSeconds(time.seconds()),
                          absl::LocalTimeZone());
}

bool MayColor() {
  const char* no_color = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) != 0 && (no_color == nullptr || no_color[0] == '\0');
}

std::string CutToWidth(const std::string& text, int width) {
  int columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsContinuation(text[i])) continue;
    if (columns == width) return text.substr(0, i);
    ++columns;
  }
  return text;
}

TerminalSize SizeOfTerminal(int fd) {
  struct winsize size {};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return {.columns = 80, .rows = 24};
  return {.columns = size.ws_col, .rows = size.ws_row < 2 ? 24 : size.ws_row};
}

void PrintData(absl::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void PrintTalk(absl::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace penstock::client
