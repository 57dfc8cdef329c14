// Ed25519 (RFC 8032) by OpenSSL. A key file is one line, "ed25519-seed " and the 32 bytes of the
// seed as 64 hexadecimal digits; whoever has it can sign as this daemon. The words before it keep
// anyone from taking a seed for a public key, which is 64 digits too.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace penstock {

inline constexpr char kSeedMark[] = "ed25519-seed ";
inline constexpr size_t kSeedBytes = 32, kPublicKeyBytes = 32, kSignatureBytes = 64;

// Immutable; used from several threads at once.
class SigningKey {
 public:
  // REQUIRES: kSeedBytes of seed.
  static SigningKey FromSeed(std::string_view seed);

  // FailedPrecondition / CONFIG_INVALID for a file that is no key, or that others may read.
  // NotFound / IO_ERROR if there is none.
  static absl::StatusOr<SigningKey> Load(const std::string& path);

  // The key in the file, which is made of random bytes, with mode 0600, if there is none. It is on
  // the device when this returns, and a file that is there is never written to.
  static absl::StatusOr<SigningKey> LoadOrCreate(const std::string& path);

  SigningKey(SigningKey&&) noexcept;
  SigningKey& operator=(SigningKey&&) noexcept;
  ~SigningKey();

  // In hexadecimal.
  const std::string& public_key() const { return public_key_; }
  // kSignatureBytes. The same for the same message.
  std::string Sign(std::string_view message) const;

 private:
  struct State;
  explicit SigningKey(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
  std::string public_key_;
};

// The public key, in hexadecimal, that is meant: itself, or what is in the file of that name, which
// is a key file or holds a public key. InvalidArgument / REQUEST_INVALID for anything else.
absl::StatusOr<std::string> PublicKeyFrom(const std::string& key_or_file);

// Whether `signature` is that of `message` by the key, which is in hexadecimal. False for a key or
// a signature of another length.
bool IsSignatureOf(std::string_view public_key, std::string_view message,
                   std::string_view signature);

}  // namespace penstock
