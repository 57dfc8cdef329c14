#include "engine/train/safetensors_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "nlohmann/json.hpp"

namespace penstock {
namespace {

constexpr int64_t kHeaderAlignment = 8;

// Written by hand, in the order of the data: nlohmann's object would sort the names.
std::string MakeHeader(const std::vector<StoredTensor>& tensors) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  int64_t offset = 0;
  for (const StoredTensor& tensor : tensors) {
    const int64_t end = offset + tensor.bytes;
    absl::StrAppend(&header, ",", nlohmann::json(tensor.name).dump(), ":{\"dtype\":\"",
                    tensor.dtype, "\",\"shape\":[", absl::StrJoin(tensor.shape, ","),
                    "],\"data_offsets\":[", offset, ",", end, "]}");
    offset = end;
  }
  header += '}';
  header.resize(RoundUp(static_cast<int64_t>(header.size()), kHeaderAlignment), ' ');
  return header;
}

}  // namespace

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(
    int directory_fd, const std::string& directory, const std::string& name,
    const std::vector<WeightEntry>& entries) {
  std::vector<StoredTensor> tensors;
  for (const WeightEntry& entry : entries) {
    tensors.push_back({.name = entry.name,
                       .dtype = ToString(entry.type),
                       .shape = entry.shape,
                       .bytes = entry.bytes()});
  }
  return Create(directory_fd, directory, name, tensors);
}

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(
    int directory_fd, const std::string& directory, const std::string& name,
    const std::vector<StoredTensor>& tensors) {
  int64_t data_bytes = 0;
  for (const StoredTensor& tensor : tensors) data_bytes += tensor.bytes;
  const std::string header = MakeHeader(tensors);
  const uint64_t length = header.size();
  PENSTOCK_ASSIGN_OR_RETURN(
      FileWriter file,
      FileWriter::Create(directory_fd, directory, name,
                         static_cast<int64_t>(sizeof(length) + length) + data_bytes));
  PENSTOCK_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(&length, 1))));
  PENSTOCK_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(header))));
  return SafetensorsWriter(std::move(file), data_bytes);
}

absl::Status SafetensorsWriter::Append(std::span<const std::byte> bytes) {
  const int64_t count = static_cast<int64_t>(bytes.size());
  if (count > remaining_) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kInternal,
                 absl::StrCat(count, " more bytes for a safetensors file that lacks ", remaining_));
  }
  remaining_ -= count;
  return file_.Append(bytes);
}

absl::StatusOr<WrittenFile> SafetensorsWriter::Finish() {
  if (remaining_ != 0) {
    return Error(absl::StatusCode::kFailedPrecondition, reason::kInternal,
                 absl::StrCat("a safetensors file was finished ", remaining_, " bytes early"));
  }
  return file_.Finish();
}

}  // namespace penstock
