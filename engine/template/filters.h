// The filters: value | name(arguments).
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/template/objects.h"

namespace penstock::jinja {

class Interpreter;

struct FilterEntry {
  std::string_view name;
  absl::StatusOr<Value> (*apply)(Interpreter& interpreter, const Value& value,
                                 CallArguments arguments);
};

// nullptr if there is none of that name.
const FilterEntry* FindFilter(std::string_view name);

}  // namespace penstock::jinja
