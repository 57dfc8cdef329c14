#include "engine/kernels/contract.h"

#include <limits>
#include <string>

#include "engine/base/status.h"

namespace penstock {

absl::Status Require(bool holds, std::string_view op, std::string_view contract,
                     std::initializer_list<NamedValue> found) {
  if (holds) [[likely]] {
    return absl::OkStatus();
  }
  std::string message;
  message.append(op).append(": wanted ").append(contract);
  std::string_view separator = "; found ";
  for (const NamedValue& value : found) {
    message.append(separator).append(value.name).append(" = ").append(std::to_string(value.value));
    separator = ", ";
  }
  return Error(absl::StatusCode::kInvalidArgument, reason::kInternal, message);
}

absl::Status RequireSizes(std::string_view op, std::initializer_list<NamedValue> sizes) {
  bool hold = true;
  for (const NamedValue& size : sizes) {
    hold = hold && size.value >= 0 && size.value <= std::numeric_limits<int32_t>::max();
  }
  return Require(hold, op, "every size in [0, 2^31)", sizes);
}

}  // namespace penstock
