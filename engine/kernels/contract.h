// Checks of an op's contract, at its start and before it writes anything.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "absl/status/status.h"

namespace penstock {

struct NamedValue {
  std::string_view name;
  int64_t value;
};

// InvalidArgument "op: wanted <contract>; found a = 1, b = 2" unless `holds`.
absl::Status Require(bool holds, std::string_view op, std::string_view contract,
                     std::initializer_list<NamedValue> found = {});

// Every size is in [0, 2^31): BLAS takes no more, and products of two fit int64.
absl::Status RequireSizes(std::string_view op, std::initializer_list<NamedValue> sizes);

}  // namespace penstock
