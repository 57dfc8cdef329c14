// SHA-256 of a text, in hexadecimal.
#pragma once

#include <string>
#include <string_view>

namespace penstock::server {

std::string Sha256Hex(std::string_view text);

}  // namespace penstock::server
