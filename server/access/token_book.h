// The bearer tokens, in memory, for the door. Of a secret only the SHA-256 is kept, here and in the
// store.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "penstock/v1/admin_service.pb.h"
#include "server/access/call.h"

namespace penstock::server {

// "pst_" and 64 random hexadecimal digits.
std::string NewTokenSecret();
// 12 random characters: the id of a token, which is no secret.
std::string NewTokenId();
// Of a secret, as the book and the store have it.
std::string TokenHash(std::string_view secret);

// Thread-safe.
class TokenBook {
 public:
  // `on_use` hears of the use of a token at most once a minute, on the thread of the call.
  explicit TokenBook(std::function<void(const std::string& name, absl::Time time)> on_use)
      : on_use_(std::move(on_use)) {}

  void Add(const v1::Token& token, const std::string& hash);
  // Its holder's streams see it at once. Nothing for a token that is not there.
  void Revoke(const std::string& name);

  // Unauthenticated / TOKEN_INVALID, TOKEN_EXPIRED or TOKEN_REVOKED.
  absl::StatusOr<Identity> Check(std::string_view secret, absl::Time now);

 private:
  struct Entry {
    v1::Caller caller;
    std::shared_ptr<TokenState> state;
    absl::Time noted_use = absl::InfinitePast();
  };

  const std::function<void(const std::string&, absl::Time)> on_use_;
  std::mutex mutex_;
  // Guarded by mutex_. By hash: how long the search takes tells of the hash, from which nobody
  // comes back to 256 random bits.
  std::map<std::string, Entry, std::less<>> by_hash_;
};

}  // namespace penstock::server
