// The methods of strings, lists and dicts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/template/objects.h"

namespace penstock::jinja {

class Interpreter;

enum class MethodSupport {
  kNone,  // Python has no such method either
  kSupported,
  kChanges,      // it changes the object: the sandbox gives an undefined value
  kUnsupported,  // Python has it, we do not
};
MethodSupport FindMethod(const Value& self, std::string_view name);

absl::StatusOr<Value> CallMethod(Interpreter& interpreter, const MethodObject& method,
                                 CallArguments arguments);
absl::StatusOr<Value> CallStringMethod(Interpreter& interpreter, const Value& self,
                                       std::string_view name, CallArguments arguments);
absl::StatusOr<Value> CallContainerMethod(Interpreter& interpreter, const Value& self,
                                          std::string_view name, CallArguments arguments);

// `text` with `fresh` in place of `old`, the first `limit` times or everywhere (-1).
absl::StatusOr<std::string> ReplaceText(Interpreter& interpreter, std::string_view text,
                                        std::string_view old, std::string_view fresh,
                                        int64_t limit);

}  // namespace penstock::jinja
