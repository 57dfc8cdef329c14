// What the command line prints. stdout is data: tables for people, or the reply as proto3 JSON or
// YAML for programs. stderr is talk: errors, warnings, progress.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "google/protobuf/timestamp.pb.h"

namespace penstock::client {

enum class Format : uint8_t { kTable, kJson, kYaml };

// Text from elsewhere, safe for a terminal: control characters become '?', but for tabs.
std::string Printable(absl::string_view text);

// Columns as wide as their widest cell, two blanks between; numbers are aligned to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string ToText() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// "Key:  value" lines, keys padded to one width.
class Facts {
 public:
  // An empty value is left out.
  void Add(std::string key, std::string value);
  std::string ToText() const;

 private:
  std::vector<std::pair<std::string, std::string>> facts_;
};

// kJson and kYaml only. kJson of a stream is one line a message.
std::string FormatMessage(Format format, const google::protobuf::Message& message);
std::string FormatStreamed(Format format, const google::protobuf::Message& message);

// For people: message, reason, way out, request id. For kJson and kYaml: google.rpc.Status with its
// details.
std::string FormatError(Format format, const absl::Status& status);

std::string FormatDuration(double seconds);                       // "1h02m", "3m07s", "12s"
std::string FormatCount(double count);                            // "1.2M", "34.5k", "812"
std::string FormatLoss(double loss);                              // "3.2142"
std::string FormatTime(const google::protobuf::Timestamp& time);  // local; "" if unset

// Whether text on standard output may be coloured: a terminal, and NO_COLOR is not set.
bool MayColor();

// Text of at most `width` columns, cut between characters; one that is no UTF-8 is cut anywhere.
std::string CutToWidth(const std::string& text, int width);

// Columns and rows of the terminal at this descriptor; 80 and 24 if it says nothing sensible.
struct TerminalSize {
  int columns, rows;
};
TerminalSize SizeOfTerminal(int fd);

// Writes and flushes; a closed pipe ends the process by SIGPIPE as usual.
void PrintData(absl::string_view text);
void PrintTalk(absl::string_view text);

}  // namespace penstock::client
