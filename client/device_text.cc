#include "client/device_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/output.h"
#include "engine/base/units.h"
#include "proto/message_print.h"

namespace penstock::client {
namespace {

std::string HealthName(const v1::Device& device) {
  return ShortEnumName(*v1::DeviceHealth_descriptor(), device.health());
}

}  // namespace

std::string ReadingText(const v1::DeviceReading& reading) {
  std::vector<std::string> parts;
  if (reading.has_utilization()) {
    parts.push_back(absl::StrFormat("%.0f%% busy", reading.utilization() * 100));
  }
  if (reading.has_memory_used_bytes()) {
    parts.push_back(absl::StrCat(FormatBytes(reading.memory_used_bytes()), " used"));
  }
  if (reading.has_temperature_celsius()) {
    parts.push_back(absl::StrFormat("%.0f C", reading.temperature_celsius()));
  }
  if (reading.has_power_watts()) {
    parts.push_back(absl::StrFormat("%.0f W", reading.power_watts()));
  }
  return absl::StrJoin(parts, ", ");
}

std::string DevicesTable(const google::protobuf::RepeatedPtrField<v1::Device>& devices) {
  Table table({"DEVICE", "KIND", "HEALTH", "MEMORY", "JOB", "NOW", "DESCRIPTION"});
  std::string problems;
  for (const v1::Device& device : devices) {
    const std::string now = ReadingText(device.reading());
    table.Add({device.id(), ShortEnumName(*v1::DeviceKind_descriptor(), device.kind()),
               HealthName(device), FormatBytes(device.memory_bytes()),
               device.job().empty() ? "-" : device.job(), now.empty() ? "-" : now,
               device.description()});
    if (!device.health_message().empty()) absl::StrAppend(&problems, DeviceText(device), "\n");
  }
  return absl::StrCat(table.ToText(), problems);
}

std::string DeviceText(const v1::Device& device) {
  std::string text = absl::StrCat(device.id(), " ", HealthName(device));
  if (!device.health_message().empty()) absl::StrAppend(&text, ": ", device.health_message());
  return text;
}

}  // namespace penstock::client
