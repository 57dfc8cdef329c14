// The functions that every template can call: range, namespace, dict, cycler, joiner,
// raise_exception, strftime_now.
#pragma once

#include <string_view>

#include "engine/template/value.h"

namespace penstock::jinja {

// nullptr if there is none of that name.
const Value* FindGlobal(std::string_view name);

}  // namespace penstock::jinja
