#include "engine/base/utf8.h"

#include <cstdint>
#include <cstring>

namespace penstock {
namespace {

struct Step {
  int bytes = 0;
  bool valid = false;
};

// The character that starts at `p`, or the part of it that is there.
Step StepAt(const char* p, const char* end) {
  const auto lead = static_cast<unsigned char>(*p);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const int length = Utf8Length(*p);
  // The second byte decides about overlong forms, surrogates and what lies above U+10FFFF.
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (int i = 1; i < length; ++i) {
    if (p + i == end) return {i, false};
    const auto byte = static_cast<unsigned char>(p[i]);
    if (i == 1 ? byte < low || byte > high : !IsUtf8Continuation(p[i])) return {i, false};
  }
  return {length, true};
}

}  // namespace

size_t Utf8SequenceLength(std::string_view text) {
  if (text.empty()) return 0;
  const Step step = StepAt(text.data(), text.data() + text.size());
  return step.valid ? static_cast<size_t>(step.bytes) : 0;
}

size_t FindInvalidUtf8(std::string_view text) {
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    // Most text is ASCII: eight bytes at a time.
    for (uint64_t word = 0; end - p >= 8; p += sizeof(word)) {
      std::memcpy(&word, p, sizeof(word));
      if ((word & 0x8080808080808080u) != 0) break;
    }
    if (p == end) break;
    const Step step = StepAt(p, end);
    if (!step.valid) return static_cast<size_t>(p - text.data());
    p += step.bytes;
  }
  return std::string_view::npos;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const Step step = StepAt(p, end);
    if (step.valid) {
      result.append(p, static_cast<size_t>(step.bytes));
    } else {
      result += "\xEF\xBF\xBD";
    }
    p += step.bytes;
  }
  return result;
}

void AppendUtf8(char32_t c, std::string& out) {
  const auto add = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xC0 | c >> 6);
    add(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    add(0xE0 | c >> 12);
    add(0x80 | (c >> 6 & 0x3F));
    add(0x80 | (c & 0x3F));
  } else {
    add(0xF0 | c >> 18);
    add(0x80 | (c >> 12 & 0x3F));
    add(0x80 | (c >> 6 & 0x3F));
    add(0x80 | (c & 0x3F));
  }
}

}  // namespace penstock
