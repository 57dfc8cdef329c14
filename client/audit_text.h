// What `penstock verify` and `penstock diff` found, as text for people and as JSON, which is YAML
// too. No daemon has made these, so no message of the API holds them.
#pragma once

#include <cstdint>
#include <string>

#include "engine/audit/verify.h"
#include "engine/audit/weights_diff.h"

namespace penstock::client {

std::string VerifyText(const VerifyReport& report);
std::string VerifyJson(const VerifyReport& report);

// The `top` tensors that moved furthest, by relative change.
std::string DiffText(const WeightsDiff& diff, int64_t top);
// Of all tensors.
std::string DiffJson(const WeightsDiff& diff);

}  // namespace penstock::client
