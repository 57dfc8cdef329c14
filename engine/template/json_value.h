// JSON text as values for templates. Keys keep their order, which ParseStrictJson's do not: a
// tool's schema is printed as it was written.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/model/strict_json.h"
#include "engine/template/value.h"

namespace penstock::jinja {

// The value, or InvalidArgument / `error_reason` naming `what`, what is wrong and where: too many
// bytes, nested too deep, a key twice, an integer beyond 64 bits, no JSON.
absl::StatusOr<Value> ParseJsonValue(absl::string_view text, absl::string_view what,
                                     const JsonLimits& limits, std::string_view error_reason);

}  // namespace penstock::jinja
