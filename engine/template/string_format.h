// Python's two ways to format strings: "%s" % values and "{}".format(values).
#pragma once

#include "absl/status/statusor.h"
#include "engine/template/objects.h"

namespace penstock::jinja {

class Interpreter;

// format % values. REQUIRES: format.is_string().
absl::StatusOr<Value> FormatPercent(Interpreter& interpreter, const Value& format,
                                    const Value& values);
// format.format(arguments). REQUIRES: format.is_string().
absl::StatusOr<Value> FormatBraces(Interpreter& interpreter, const Value& format,
                                   const CallArguments& arguments);

}  // namespace penstock::jinja
