#include "engine/tokenizer/proto_fields.h"

#include <cstring>

namespace penstock {
namespace {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

}  // namespace

float ProtoField::AsFloat() const {
  const auto bits = static_cast<uint32_t>(integer);
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

bool ProtoFields::ReadVarint(uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool ProtoFields::ReadFixed(size_t bytes, uint64_t& value) {
  if (rest_.size() < bytes) return false;
  value = 0;
  for (size_t i = 0; i < bytes; ++i) {
    value |= uint64_t{static_cast<unsigned char>(rest_[i])} << (8 * i);
  }
  rest_.remove_prefix(bytes);
  return true;
}

bool ProtoFields::ReadField(ProtoField& field) {
  uint64_t tag = 0;
  if (!ReadVarint(tag) || tag > UINT32_MAX || tag >> 3 == 0) return false;
  field = {.number = static_cast<uint32_t>(tag >> 3)};
  switch (tag & 7) {
    case kVarint:
      return ReadVarint(field.integer);
    case kFixed64:
      return ReadFixed(8, field.integer);
    case kFixed32:
      return ReadFixed(4, field.integer);
    case kBytes: {
      uint64_t size = 0;
      if (!ReadVarint(size) || size > rest_.size()) return false;
      field.bytes = rest_.substr(0, size);
      rest_.remove_prefix(size);
      return true;
    }
    default:  // groups, which proto3 no longer has
      return false;
  }
}

bool ProtoFields::Next(ProtoField& field) {
  if (broken_ || rest_.empty()) return false;
  broken_ = !ReadField(field);
  return !broken_;
}

}  // namespace penstock
