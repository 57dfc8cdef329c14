// Ctrl-C and SIGTERM as something to ask for, while a command follows a job. Other commands keep
// the default: the signal ends them.
#pragma once

#include <cstdint>

namespace penstock::client {

enum class Interrupt : uint8_t { kNone, kInterrupt, kTerminate };

// While one of these lives, SIGINT and SIGTERM are counted instead of ending the process.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // The first signal that came.
  Interrupt first() const;
  int count() const;
};

}  // namespace penstock::client
