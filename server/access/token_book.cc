#include "server/access/token_book.h"

#include <openssl/rand.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/provenance/sha256.h"
#include "server/reasons.h"

namespace penstock::server {
namespace {

constexpr size_t kSecretBytes = 32, kIdBytes = 6;
constexpr absl::Duration kUseInterval = absl::Minutes(1);

absl::Status Refused(std::string_view reason, const std::string& what, const std::string& name) {
  ErrorMetadata metadata;
  if (!name.empty()) metadata["token"] = name;
  return Error(
      absl::StatusCode::kUnauthenticated, reason,
      absl::StrCat("the token ", what, "; ask an admin for one (penstock admin token create)"),
      metadata);
}

std::string RandomHex(size_t bytes) {
  std::string random(bytes, '\0');
  PENSTOCK_CHECK(
      RAND_bytes(reinterpret_cast<unsigned char*>(random.data()), static_cast<int>(bytes)) == 1,
      "OpenSSL has no random bytes");
  return absl::BytesToHexString(random);
}

}  // namespace

std::string NewTokenSecret() { return absl::StrCat("pst_", RandomHex(kSecretBytes)); }

std::string NewTokenId() { return RandomHex(kIdBytes); }

std::string TokenHash(std::string_view secret) { return Sha256Of(secret); }

void TokenBook::Add(const v1::Token& token, const std::string& hash) {
  Entry entry;
  entry.caller.set_user(token.user());
  entry.caller.set_role(token.role());
  entry.state = std::make_shared<TokenState>();
  entry.state->name = token.name();
  entry.state->revoked = token.has_revoke_time();
  if (token.has_expire_time()) {
    entry.state->expire_time = absl::FromUnixSeconds(token.expire_time().seconds());
  }
  std::lock_guard lock(mutex_);
  by_hash_[hash] = std::move(entry);
}

void TokenBook::Revoke(const std::string& name) {
  std::lock_guard lock(mutex_);
  for (auto& [hash, entry] : by_hash_) {
    if (entry.state->name == name) entry.state->revoked = true;
  }
}

absl::StatusOr<Identity> TokenBook::Check(std::string_view secret, absl::Time now) {
  const std::string hash = TokenHash(secret);
  Identity identity;
  {
    std::lock_guard lock(mutex_);
    const auto found = by_hash_.find(hash);
    if (found == by_hash_.end()) {
      return Refused(reason::kTokenInvalid, "is not one of this daemon", "");
    }
    Entry& entry = found->second;
    const std::string& name = entry.state->name;
    if (entry.state->revoked) return Refused(reason::kTokenRevoked, "has been revoked", name);
    if (entry.state->expire_time <= now) {
      return Refused(reason::kTokenExpired,
                     absl::StrCat("has expired at ",
                                  absl::FormatTime(absl::RFC3339_sec, entry.state->expire_time,
                                                   absl::UTCTimeZone()),
                                  ", and the daemon's clock says ",
                                  absl::FormatTime(absl::RFC3339_sec, now, absl::UTCTimeZone())),
                     name);
    }
    identity = {.caller = entry.caller, .token = entry.state};
    if (now - entry.noted_use < kUseInterval) return identity;
    entry.noted_use = now;
  }
  on_use_(identity.token->name, now);
  return identity;
}

}  // namespace penstock::server
