#include "server/access/digest.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"
#include "engine/base/check.h"

namespace penstock::server {

std::string Sha256Hex(std::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  PENSTOCK_CHECK(EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr) == 1,
                 "OpenSSL has no SHA-256");
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
}

}  // namespace penstock::server
