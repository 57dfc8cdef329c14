#include "engine/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace penstock {

void CheckFailed(const char* file, int line, const char* expression, const std::string& detail) {
  std::fprintf(stderr, "%s:%d: check failed: %s: %s\n", file, line, expression, detail.c_str());
  std::abort();
}

}  // namespace penstock
