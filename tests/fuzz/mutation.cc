#include "tests/fuzz/mutation.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/tokenizer/proto_fields.h"

namespace penstock::fuzz {
namespace {

using nlohmann::ordered_json;

void ChangeText(std::string& text, std::span<const std::string> dictionary, std::string_view other,
                Random& random) {
  const size_t at = random.Below(text.size() + 1);
  const size_t length = random.Below(std::min<size_t>(text.size() - at, 40) + 1);
  switch (random.Below(7)) {
    case 0:
      text.erase(at, length);
      break;
    case 1:
      text.insert(random.Below(text.size() + 1), text.substr(at, length));
      break;
    case 2:
      if (!dictionary.empty()) text.insert(at, random.Pick(dictionary));
      break;
    case 3: {
      const size_t from = random.Below(other.size() + 1);
      text.insert(at, other.substr(from, random.Below(60)));
      break;
    }
    case 4:
      if (at < text.size()) text[at] = random.Byte();
      break;
    case 5:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << random.Below(8)));
      break;
    default:
      text.resize(at);
  }
}

ordered_json RandomValue(const ordered_json& root, Random& random) {
  static const std::vector<std::string> strings = {"",          "a*|(?=b)|\\s",
                                                   "Sequence",  "日",
                                                   "\xcc\x81",  "(a+)+$",
                                                   "\\p{Han}|", "<s>",
                                                   "▁",         "Ġ",
                                                   " a ",       "<unk>\n\t",
                                                   "[",         std::string("\0", 1)};
  switch (random.Below(11)) {
    case 0:
      return nullptr;
    case 1:
      return random.OneIn(2);
    case 2:
      return -1;
    case 3:
      return int64_t{1} << random.Below(63);
    case 4:
      return 0.5;
    case 5:
      return 1e300;
    case 6:
      return ordered_json::array();
    case 7:
      return ordered_json::object();
    case 8: {  // some other part
      const ordered_json* part = &root;
      while (part->is_structured() && !part->empty() && !random.OneIn(3)) {
        auto child = part->begin();
        std::advance(child, static_cast<std::ptrdiff_t>(random.Below(part->size())));
        part = &*child;
      }
      return *part;
    }
    default:
      return random.Pick(strings);
  }
}

struct Field {
  uint32_t number = 0;
  uint32_t wire_type = 0;
  uint64_t integer = 0;
  std::string bytes = {};
};

void AppendVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

// The varint at the front of `rest`, as far as it goes.
uint64_t TakeVarint(std::string_view& rest) {
  uint64_t value = 0;
  for (int shift = 0; !rest.empty() && shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(rest.front());
    rest.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) break;
  }
  return value;
}

// The fields of a message that is in order, as the seeds are.
std::vector<Field> Split(std::string_view message) {
  std::vector<Field> fields;
  while (!message.empty()) {
    const uint64_t tag = TakeVarint(message);
    Field field = {.number = static_cast<uint32_t>(tag >> 3),
                   .wire_type = static_cast<uint32_t>(tag & 7)};
    size_t bytes = 0;
    if (field.wire_type == 0) field.integer = TakeVarint(message);
    if (field.wire_type == 1) bytes = 8;
    if (field.wire_type == 2) bytes = static_cast<size_t>(TakeVarint(message));
    if (field.wire_type == 5) bytes = 4;
    field.bytes = message.substr(0, bytes);
    message.remove_prefix(std::min(bytes, message.size()));
    fields.push_back(std::move(field));
  }
  return fields;
}

std::string Join(const std::vector<Field>& fields) {
  std::string message;
  for (const Field& field : fields) {
    AppendVarint(uint64_t{field.number} << 3 | field.wire_type, message);
    if (field.wire_type == 0) AppendVarint(field.integer, message);
    if (field.wire_type == 2) AppendVarint(field.bytes.size(), message);
    if (field.wire_type != 0) message += field.bytes;
  }
  return message;
}

bool IsMessage(std::string_view bytes) {
  ProtoFields fields(bytes);
  ProtoField field;
  while (fields.Next(field)) {
  }
  return !bytes.empty() && !fields.broken();
}

void ChangeField(std::vector<Field>& fields, Random& random) {
  if (fields.empty()) return;
  const size_t at = random.Below(fields.size());
  Field& field = fields[at];
  switch (random.Below(7)) {
    case 0:
      fields.erase(fields.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 1:
      fields.insert(fields.begin() + static_cast<std::ptrdiff_t>(random.Below(fields.size())),
                    fields[at]);
      break;
    case 2:
      field.number = static_cast<uint32_t>(random.Below(64));
      break;
    case 3:
      field.wire_type = static_cast<uint32_t>(random.Below(8));
      break;
    case 4:
      field.integer = random.OneIn(2) ? uint64_t{1} << random.Below(64) : random.Below(8);
      if (field.wire_type == 5) {
        static constexpr uint32_t kFloats[] = {0x7FC00000, 0x7F800000, 0xFF800000, 0x00000001};
        std::memcpy(field.bytes.data(), &random.Pick(kFloats),
                    std::min<size_t>(4, field.bytes.size()));
      }
      break;
    default:
      field.bytes =
          field.wire_type == 2 && IsMessage(field.bytes) && !random.OneIn(4)
              ? MutateProto(field.bytes, random)
              : MutateText(field.bytes, {}, fields[random.Below(fields.size())].bytes, random);
  }
}

}  // namespace

std::string MutateText(std::string text, std::span<const std::string> dictionary,
                       std::string_view other, Random& random) {
  const size_t limit = std::max(kMaxCaseBytes, text.size());
  for (size_t i = random.Below(4) + 1; i > 0; --i) ChangeText(text, dictionary, other, random);
  if (text.size() > limit) text.resize(limit);
  return text;
}

std::string MakeText(Random& random) {
  static const std::vector<std::string> pieces = {"The quick brown fox",
                                                  " ",
                                                  "  ",
                                                  "\n",
                                                  "\r\n",
                                                  "\t",
                                                  "it's we'll",
                                                  "1234",
                                                  "٣٤",
                                                  "déjà",
                                                  "e\u0301",
                                                  "ÉTÉ Straße",
                                                  "日本語",
                                                  "한국어",
                                                  "नमस्ते",
                                                  "👩‍👧",
                                                  "🇩🇪☺️",
                                                  "\u0085",
                                                  "\u00a0",
                                                  "\u200b",
                                                  "\u3000",
                                                  "ﬁ½ǅ",
                                                  "İ̇",
                                                  "à֮̕",
                                                  "<s>",
                                                  "</s>",
                                                  "<|end|>",
                                                  "<|im_start|>",
                                                  "[INST]",
                                                  "<0x0A>",
                                                  "foo(bar)->baz[0];",
                                                  "'''''''",
                                                  "aaaaaaaaaaaaaaaaaaaaaaaa",
                                                  "▁",
                                                  "Ġ",
                                                  std::string("\0", 1),
                                                  "\x01\x7f",
                                                  "\ufeff",
                                                  "\U0010ffff",
                                                  "word",
                                                  "x",
                                                  ".,;:!?"};
  static const std::vector<std::string> broken = {"\xff",         "\xc3",     "\xe2\x82",
                                                  "\xed\xa0\x80", "\xc0\x80", "\xf5\x80\x80\x80"};
  std::string text;
  for (size_t i = random.Below(12); i > 0; --i) {
    const std::string& piece = random.Pick(pieces);
    for (size_t times = random.OneIn(12) ? random.Below(200) : 1; times > 0; --times) text += piece;
  }
  if (random.OneIn(4)) text.insert(random.Below(text.size() + 1), random.Pick(broken));
  return text;
}

void MutateJson(ordered_json& root, Random& random) {
  for (size_t changes = random.Below(3) + 1; changes > 0; --changes) {
    ordered_json* value = &root;
    while (value->is_structured() && !value->empty() && !random.OneIn(6)) {
      auto child = value->begin();
      std::advance(child, static_cast<std::ptrdiff_t>(random.Below(value->size())));
      if (child->size() > 100 && !random.OneIn(4)) continue;
      value = &*child;
    }
    if (value->is_structured() && !value->empty() && random.OneIn(3)) {
      auto part = value->begin();
      std::advance(part, static_cast<std::ptrdiff_t>(random.Below(value->size())));
      value->erase(part);
    } else if (value->is_string() && random.OneIn(3)) {
      *value = MutateText(value->get<std::string>(), {}, "aA1 \\p{L}|()[]*+?", random);
    } else {
      ordered_json replacement = RandomValue(root, random);
      *value = std::move(replacement);
    }
  }
}

std::string ToText(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::ignore);
}

std::string MutateProto(std::string_view message, Random& random) {
  std::vector<Field> fields = Split(message);
  for (size_t changes = random.Below(3) + 1; changes > 0; --changes) ChangeField(fields, random);
  return Join(fields);
}

}  // namespace penstock::fuzz
