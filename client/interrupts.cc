#include "client/interrupts.h"

#include <signal.h>

#include <atomic>

namespace penstock::client {
namespace {

std::atomic<int> first_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "set in a signal handler");

void OnSignal(int signal_number) {
  int none = 0;
  first_signal.compare_exchange_strong(none, signal_number);
}

void Handle(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) sigaction(number, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  first_signal = 0;
  Handle(OnSignal);
}

InterruptGuard::~InterruptGuard() { Handle(SIG_DFL); }

Interrupt InterruptGuard::first() const {
  if (first_signal == 0) return Interrupt::kNone;
  return first_signal == SIGINT ? Interrupt::kInterrupt : Interrupt::kTerminate;
}

}  // namespace penstock::client
