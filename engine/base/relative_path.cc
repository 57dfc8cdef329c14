#include "engine/base/relative_path.h"

#include <algorithm>

namespace penstock {
namespace {

constexpr size_t kMaxPartBytes = 255;

bool IsPart(std::string_view part) {
  return !part.empty() && part.size() <= kMaxPartBytes && part != "." && part != "..";
}

}  // namespace

bool IsRelativePath(std::string_view path) {
  const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  if (path.size() > kMaxRelativePathBytes || std::any_of(path.begin(), path.end(), control)) {
    return false;
  }
  for (size_t parts = 1; parts <= kMaxRelativePathParts; ++parts) {
    const size_t slash = path.find('/');
    if (!IsPart(path.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
  return false;
}

}  // namespace penstock
