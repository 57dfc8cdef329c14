#pragma once

#include <cstdint>

namespace penstock {

// What becomes of a chat, or a prompt with its completion, of more than max_tokens. Text is never
// too long: it is cut into windows, and no token of it is lost.
enum class TooLong : uint8_t {
  kDrop,      // left out, counted and named
  kTruncate,  // its end is cut off, counted and named; left out if that leaves nothing to learn
  kSplit,     // cut into windows as text is: those after the first do not see the prompt
};

struct ExampleRules {
  bool train_on_prompt = false;  // every token is learned
  bool mask_history = false;     // of the answers, the last one only
  int64_t max_tokens = 0;        // 0: no example is too long
  TooLong too_long = TooLong::kDrop;
};

}  // namespace penstock
