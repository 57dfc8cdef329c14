// Names of files beneath a directory that came from elsewhere.
#pragma once

#include <cstddef>
#include <string_view>

namespace penstock {

inline constexpr size_t kMaxRelativePathBytes = 512;
inline constexpr size_t kMaxRelativePathParts = 16;

// Whether `path` is parts separated by single slashes, at most kMaxRelativePathParts: none empty,
// "." or "..", none longer than 255 bytes, no control characters. So it lies in the directory it is
// appended to, as long as there are no links in there.
bool IsRelativePath(std::string_view path);

// What IsRelativePath wants, for messages.
inline constexpr char kRelativePathRule[] =
    "a relative path of at most 512 bytes and 16 parts, none of them empty, '.' or '..', without "
    "control characters";

}  // namespace penstock
