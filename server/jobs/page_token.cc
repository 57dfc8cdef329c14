#include "server/jobs/page_token.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "xxhash.h"

namespace penstock::server {
namespace {

struct TokenBytes {
  int64_t position;
  uint64_t seal;  // of filter and position: a mistake shows, an attacker gains nothing
};

uint64_t Seal(const std::string& filter, int64_t position) {
  return XXH3_64bits_withSeed(filter.data(), filter.size(), static_cast<uint64_t>(position));
}

}  // namespace

std::string MakePageToken(const std::string& filter, int64_t position) {
  const TokenBytes bytes{.position = position, .seal = Seal(filter, position)};
  return absl::WebSafeBase64Escape(
      std::string(reinterpret_cast<const char*>(&bytes), sizeof bytes));
}

absl::StatusOr<int64_t> ParsePageToken(const std::string& token, const std::string& filter,
                                       int64_t first) {
  if (token.empty()) return first;
  std::string raw;
  TokenBytes bytes{};
  if (absl::WebSafeBase64Unescape(token, &raw) && raw.size() == sizeof bytes) {
    std::memcpy(&bytes, raw.data(), sizeof bytes);
    if (bytes.seal == Seal(filter, bytes.position)) return bytes.position;
  }
  return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
               "page_token is not one that this list with this filter gave; start without one",
               {{"field", "page_token"}});
}

absl::StatusOr<int64_t> PageSize(int32_t requested) {
  if (requested < 0) {
    return Error(
        absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
        absl::StrCat("page_size is ", requested, "; 0 (for 100) to 1000 are possible"),
        {{"field", "page_size"}, {"found", absl::StrCat(requested)}, {"expected", "0 to 1000"}});
  }
  return requested == 0 ? 100 : std::min<int64_t>(requested, 1000);
}

}  // namespace penstock::server
