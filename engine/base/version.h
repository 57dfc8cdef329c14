#pragma once

namespace penstock {

// "0.1.0": of this build, from CMakeLists.txt.
const char* Version();

}  // namespace penstock
