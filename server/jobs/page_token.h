// Page tokens: opaque to clients, bound to the list and filter they were made for.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace penstock::server {

std::string MakePageToken(const std::string& filter, int64_t position);
// `first` for an empty token. InvalidArgument / REQUEST_INVALID for a token that is damaged or
// of another filter.
absl::StatusOr<int64_t> ParsePageToken(const std::string& token, const std::string& filter,
                                       int64_t first);
// 0: 100; more than 1000 is 1000; negative is InvalidArgument.
absl::StatusOr<int64_t> PageSize(int32_t requested);

}  // namespace penstock::server
