#include "engine/train/safetensors.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/model/strict_json.h"

namespace penstock {
namespace {

constexpr int64_t kLengthBytes = 8;

absl::Status Refuse(const ReadableFile& file, absl::string_view problem) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kModelInvalid,
               absl::StrCat(file.path(), " is ", problem), {{"file", file.path()}});
}

}  // namespace

absl::StatusOr<std::vector<StoredTensor>> ReadSafetensorsHeader(const ReadableFile& file) {
  char start[512] = {};
  const int64_t peeked = std::min<int64_t>(file.size(), sizeof(start));
  PENSTOCK_RETURN_IF_ERROR(
      file.ReadAt(0, std::as_writable_bytes(std::span(start, static_cast<size_t>(peeked)))));
  const std::string foreign = DescribeForeignContent({start, static_cast<size_t>(peeked)});
  if (!foreign.empty()) return Refuse(file, foreign);
  if (peeked <= kLengthBytes) {
    return Refuse(
        file, absl::StrCat("only ", peeked, " bytes long, no safetensors file; download it again"));
  }
  uint64_t length = 0;  // little-endian, as every machine we run on
  std::memcpy(&length, start, kLengthBytes);
  const int64_t available = file.size() - kLengthBytes;
  if (start[kLengthBytes] != '{') {
    return Refuse(file, "no safetensors file: its header does not start with '{'");
  }
  if (length > static_cast<uint64_t>(available)) {
    return Refuse(file,
                  absl::StrCat("cut off or no safetensors file: it announces a header of ", length,
                               " bytes and has ", available, " left; download it again"));
  }
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeaderBytes)) {
    return Refuse(
        file, absl::StrCat("refused: its header has ", length, " bytes, more than the limit of ",
                           FormatBytes(kMaxSafetensorsHeaderBytes)));
  }
  const int64_t header_bytes = static_cast<int64_t>(length);
  std::string json(length, '\0');
  PENSTOCK_RETURN_IF_ERROR(file.ReadAt(kLengthBytes, std::as_writable_bytes(std::span(json))));
  return ParseSafetensorsHeader(json, file.path(), kLengthBytes + header_bytes,
                                available - header_bytes);
}

}  // namespace penstock
