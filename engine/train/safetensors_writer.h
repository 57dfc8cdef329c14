// Writes one safetensors file front to back: header first, then the bytes of every tensor in
// their order, as a stream. The header carries {"format": "pt"} and is padded with
// spaces to a multiple of 8 bytes, so the data is aligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/train/file_writer.h"
#include "engine/train/safetensors.h"
#include "engine/train/weight_table.h"

namespace penstock {

class SafetensorsWriter {
 public:
  // Creates `name` in the directory; it must not exist. Reserves the space at once where the
  // file system can: ResourceExhausted / DISK_INSUFFICIENT with the bytes wanted otherwise.
  // Where the tensors begin is not read: they follow each other.
  static absl::StatusOr<SafetensorsWriter> Create(int directory_fd, const std::string& directory,
                                                  const std::string& name,
                                                  const std::vector<StoredTensor>& tensors);
  static absl::StatusOr<SafetensorsWriter> Create(int directory_fd, const std::string& directory,
                                                  const std::string& name,
                                                  const std::vector<WeightEntry>& entries);

  // The next bytes of the stream. InvalidArgument / INTERNAL beyond the announced end.
  absl::Status Append(std::span<const std::byte> bytes);

  // Flushes to the device and closes. FailedPrecondition / INTERNAL if bytes are missing.
  absl::StatusOr<WrittenFile> Finish();

 private:
  SafetensorsWriter(FileWriter file, int64_t remaining)
      : file_(std::move(file)), remaining_(remaining) {}
  FileWriter file_;
  int64_t remaining_;
};

}  // namespace penstock
