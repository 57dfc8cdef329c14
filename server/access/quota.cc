#include "server/access/quota.h"

namespace penstock::server {

internal::UserQuota QuotaOf(const Quotas& quotas, const std::string& user) {
  internal::UserQuota others;
  for (const internal::UserQuota& quota : quotas) {
    if (quota.user() == user) return quota;
    if (quota.user() == "*") others = quota;
  }
  return others;
}

}  // namespace penstock::server
