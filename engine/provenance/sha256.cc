#include "engine/provenance/sha256.h"

#include <openssl/evp.h>

#include "engine/base/check.h"

namespace penstock {

struct Sha256::State {
  State() : context(EVP_MD_CTX_new()) {
    PENSTOCK_CHECK(context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1,
                   "OpenSSL has no SHA-256");
  }
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  EVP_MD_CTX* context;
};

Sha256::Sha256() : state_(std::make_unique<State>()) {}
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

void Sha256::Update(std::span<const std::byte> bytes) {
  PENSTOCK_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1, "SHA-256");
}

Sha256Digest Sha256::Finish() {
  Sha256Digest digest{};
  PENSTOCK_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), nullptr) == 1, "SHA-256");
  return digest;
}

std::string Sha256Of(std::string_view text) {
  Sha256 hash;
  hash.Update(std::as_bytes(std::span(text)));
  return HexOf(hash.Finish());
}

std::string HexOf(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const uint8_t byte : bytes) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

std::optional<std::string> BytesOfHex(std::string_view hex, size_t size) {
  if (hex.size() != 2 * size) return std::nullopt;
  const auto value = [](char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    return -1;
  };
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) {
    const int high = value(hex[2 * i]), low = value(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes[i] = static_cast<char>(high << 4 | low);
  }
  return bytes;
}

}  // namespace penstock
