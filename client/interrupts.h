// Ctrl-C and SIGTERM as something to ask for, while a command follows a job. Other commands keep
// the default: the signal ends them. SIGUSR1 and SIGUSR2 are taken as SIGTERM: batch schedulers are
// told to send them (sbatch --signal=B:USR1@120).
#pragma once

#include <cstdint>

namespace penstock::client {

enum class Interrupt : uint8_t { kNone, kInterrupt, kTerminate };

// While one of these lives, these signals are noted instead of ending the process.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // The first signal that came.
  Interrupt first() const;
};

}  // namespace penstock::client
