// SHA-256 of a stream, by OpenSSL, and bytes as hexadecimal text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace penstock {

using Sha256Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  ~Sha256();
  void Update(std::span<const std::byte> bytes);
  // Ends the stream: nothing may be called after it.
  Sha256Digest Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// In hexadecimal.
std::string Sha256Of(std::string_view text);

// Two lower-case digits a byte.
std::string HexOf(std::span<const uint8_t> bytes);
// The reverse; nothing unless it is `size` bytes in lower-case digits.
std::optional<std::string> BytesOfHex(std::string_view hex, size_t size);

}  // namespace penstock
