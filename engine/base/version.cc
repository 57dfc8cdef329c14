#include "engine/base/version.h"

namespace penstock {

const char* Version() { return PENSTOCK_VERSION; }

}  // namespace penstock
