// What one render may use. A template is somebody else's program: it may loop without end,
// call itself or double a string sixty times. Each limit that is hit ends the render with
// ResourceExhausted, naming the limit and the template's line; nothing else notices.
#pragma once

#include <cstdint>

namespace penstock::jinja {

struct Limits {
  // Evaluated nodes, iterations, and 1 for every 256 bytes that are searched or copied.
  // Real templates take a few hundred a message; ten million are about a second.
  int64_t max_steps = 10'000'000;
  int64_t max_output_bytes = int64_t{64} << 20;
  int64_t max_value_bytes = int64_t{16} << 20;   // of one string; 1/16 as many list items
  int64_t max_total_bytes = int64_t{512} << 20;  // of all strings and lists made by a render
  int max_depth = 600;        // nested evaluations: expressions, statements, macro calls
  int max_value_depth = 100;  // lists in lists
};

// Limits of the parser. They are not for choice: what lies beyond is no chat template.
inline constexpr int64_t kMaxTemplateBytes = int64_t{1} << 20;
inline constexpr int kMaxNesting = 200;         // of the syntax tree, counting chains as a + b + c
inline constexpr int64_t kMaxParameters = 255;  // of a macro; also the named arguments of a call
// A name is looked at once for each loop and macro around it; a real template is far below.
inline constexpr int64_t kMaxNameVisits = 10'000'000;

}  // namespace penstock::jinja
