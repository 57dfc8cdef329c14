#include "server/metric_files/tensorboard_events.h"

#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "boost/crc.hpp"
#include "engine/base/status.h"
#include "google/protobuf/util/time_util.h"

namespace penstock::server {
namespace {

constexpr uint64_t kMaxRecordBytes = 1 << 20;
constexpr int64_t kHeadBytes = 12;
constexpr int64_t kTailBytes = 4;

uint32_t MaskedCrc32c(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  const uint32_t value = crc.checksum();
  return ((value >> 15) | (value << 17)) + 0xA282EAD8u;
}

template <typename Number>
std::string LittleEndian(Number number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

// ---- Fields of a message, in the wire format of protocol buffers ----

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string Int(int field, int64_t value) {
  return Varint(static_cast<uint64_t>(field) << 3 | 0) + Varint(static_cast<uint64_t>(value));
}
std::string Double(int field, double value) {
  return Varint(static_cast<uint64_t>(field) << 3 | 1) + LittleEndian(value);
}
std::string Float(int field, float value) {
  return Varint(static_cast<uint64_t>(field) << 3 | 5) + LittleEndian(value);
}
std::string Bytes(int field, std::string_view value) {
  std::string bytes = Varint(static_cast<uint64_t>(field) << 3 | 2) + Varint(value.size());
  return bytes.append(value);
}

double WallTime(const v1::StepMetrics& point) {
  return 1e-6 * static_cast<double>(
                    google::protobuf::util::TimeUtil::TimestampToMicroseconds(point.time()));
}

std::vector<std::pair<std::string, double>> ScalarsOf(const v1::StepMetrics& point) {
  if (point.has_evaluation()) {
    return {{"validation/loss", point.evaluation().loss()},
            {"validation/perplexity", point.evaluation().perplexity()},
            {"validation/seconds", point.evaluation().seconds()}};
  }
  std::vector<std::pair<std::string, double>> scalars = {
      {"train/loss", point.loss()},
      {"train/gradient_norm", point.grad_norm()},
      {"train/learning_rate", point.learning_rate()},
      {"train/epoch", static_cast<double>(point.epoch())},
      {"train/skipped", point.outcome() == v1::STEP_OUTCOME_APPLIED ? 0.0 : 1.0},
      {"speed/tokens_per_second", point.tokens_per_second()},
      {"speed/step_seconds", point.step_seconds()},
      {"speed/checkpoint_wait_seconds", point.checkpoint_wait_seconds()},
      {"memory/host_peak_bytes", static_cast<double>(point.host_peak_bytes())}};
  if (point.predicted_step_seconds() > 0) {
    scalars.emplace_back("speed/predicted_step_seconds", point.predicted_step_seconds());
  }
  for (const auto& [lane, seconds] : point.lane_busy_seconds()) {
    scalars.emplace_back(absl::StrCat("lane_busy_seconds/", lane), seconds);
  }
  const v1::DeviceReading& device = point.device_reading();
  if (device.has_utilization()) scalars.emplace_back("device/utilization", device.utilization());
  if (device.has_power_watts()) scalars.emplace_back("device/power_watts", device.power_watts());
  if (device.has_memory_used_bytes()) {
    scalars.emplace_back("device/memory_used_bytes",
                         static_cast<double>(device.memory_used_bytes()));
  }
  if (device.has_temperature_celsius()) {
    scalars.emplace_back("device/temperature_celsius", device.temperature_celsius());
  }
  return scalars;
}

}  // namespace

std::string TfRecord(std::string_view bytes) {
  const std::string length = LittleEndian(uint64_t{bytes.size()});
  std::string record = length + LittleEndian(MaskedCrc32c(length));
  record.append(bytes);
  return record + LittleEndian(MaskedCrc32c(bytes));
}

std::string EventFileHead(const v1::StepMetrics& point) {
  const std::string time = Double(1, WallTime(point));
  const std::string start = Bytes(7, Int(1, 1));  // session_log {status START}
  return TfRecord(time + Bytes(3, "brain.Event:2")) + TfRecord(time + Int(2, point.step()) + start);
}

std::string EventOf(const v1::StepMetrics& point) {
  std::string summary;
  for (const auto& [tag, value] : ScalarsOf(point)) {
    summary += Bytes(1, Bytes(1, tag) + Float(2, static_cast<float>(value)));
  }
  return TfRecord(Double(1, WallTime(point)) + Int(2, point.step()) + Bytes(5, summary));
}

absl::StatusOr<WholeRecords> CountTfRecords(const std::string& path) {
  WholeRecords whole;
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) return whole;
  std::string bytes;
  const auto read = [&](uint64_t count) {
    bytes.resize(count);
    return static_cast<bool>(file.read(bytes.data(), static_cast<std::streamsize>(count)));
  };
  while (read(kHeadBytes)) {
    uint64_t length = 0;
    uint32_t crc = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    std::memcpy(&crc, bytes.data() + sizeof length, sizeof crc);
    if (crc != MaskedCrc32c({bytes.data(), sizeof length}) || length > kMaxRecordBytes) break;
    if (!read(length + kTailBytes)) break;
    std::memcpy(&crc, bytes.data() + length, sizeof crc);
    if (crc != MaskedCrc32c({bytes.data(), length})) break;
    ++whole.count;
    whole.bytes += kHeadBytes + static_cast<int64_t>(length) + kTailBytes;
  }
  if (file.bad()) {
    return Error(absl::StatusCode::kUnavailable, reason::kIoError,
                 absl::StrCat(path, ": cannot read"), {{"file", path}});
  }
  return whole;
}

}  // namespace penstock::server
