// Values as text: Python's str() and repr(), json.dumps().
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/template/value.h"

namespace penstock::jinja {

class Interpreter;

// repr(value) at the end of `out`.
absl::Status AppendRepr(Interpreter& interpreter, const Value& value, std::string* out);
// str(value) at the end of `out`.
absl::Status AppendText(Interpreter& interpreter, const Value& value, std::string* out);

// repr() of a float: the shortest digits that read back as the same number.
std::string FloatRepr(double value);
std::string StringRepr(std::string_view text);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level; nullopt: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// json.dumps(value) at the end of `out`.
absl::Status AppendJson(Interpreter& interpreter, const Value& value, const JsonStyle& style,
                        std::string* out);

}  // namespace penstock::jinja
