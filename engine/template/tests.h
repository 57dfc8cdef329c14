// The tests: value is name(arguments).
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/template/objects.h"

namespace penstock::jinja {

class Interpreter;

struct TestEntry {
  std::string_view name;
  absl::StatusOr<bool> (*apply)(Interpreter& interpreter, const Value& value,
                                CallArguments arguments);
};

// nullptr if there is none of that name.
const TestEntry* FindTest(std::string_view name);

}  // namespace penstock::jinja
