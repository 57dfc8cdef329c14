// Reads the wire format of Protocol Buffers field by field. The engine does without the library:
// it reads one kind of message, SentencePiece's models.
#pragma once

#include <cstdint>
#include <string_view>

namespace penstock {

struct ProtoField {
  uint32_t number = 0;
  uint64_t integer = 0;         // of a varint; the bits of a 32- or 64-bit value
  std::string_view bytes = {};  // of a string, bytes or an inner message

  float AsFloat() const;
};

class ProtoFields {
 public:
  explicit ProtoFields(std::string_view message) : rest_(message) {}

  // False at the end of the message, or where it is broken.
  bool Next(ProtoField& field);

  // Whether Next() stopped before the end.
  bool broken() const { return broken_; }

 private:
  bool ReadVarint(uint64_t& value);
  bool ReadFixed(size_t bytes, uint64_t& value);
  bool ReadField(ProtoField& field);

  std::string_view rest_;
  bool broken_ = false;
};

}  // namespace penstock
