// Whether host memory is locked for a GPU's copy engines.
#pragma once

#include <cstdint>

namespace penstock {

enum class PageLock : uint8_t {
  kRequired,   // a refusal ends the run
  kPreferred,  // what the system refuses is copied through the driver's own buffers, more slowly
  kOff,        // nothing is locked
};

}  // namespace penstock
