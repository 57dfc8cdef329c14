// What each user may have at one time, by config.quotas.
#pragma once

#include <string>
#include <vector>

#include "penstock/internal/config.pb.h"

namespace penstock::server {

using Quotas = std::vector<internal::UserQuota>;

// The user's own entry, else that of "*", else no limits.
internal::UserQuota QuotaOf(const Quotas& quotas, const std::string& user);

}  // namespace penstock::server
