#include "server/worker/process_setup.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>

namespace penstock::server {
namespace {

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");

void OnTerminate(int) { stop_requested.store(true, std::memory_order_relaxed); }

// Only async-signal-safe calls. SA_RESETHAND has put the default action back.
void OnCrash(int signal_number) {
  const char* line = signal_number == SIGSEGV   ? "crashed: SIGSEGV (bad memory access)\n"
                     : signal_number == SIGBUS  ? "crashed: SIGBUS (bad memory or a lost file)\n"
                     : signal_number == SIGFPE  ? "crashed: SIGFPE (bad arithmetic)\n"
                     : signal_number == SIGABRT ? "crashed: SIGABRT (a check failed)\n"
                                                : "crashed: SIGILL (bad instruction)\n";
  const ssize_t ignored = write(STDOUT_FILENO, line, std::strlen(line));
  (void)ignored;
  raise(signal_number);
}

void Handle(int signal_number, void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(signal_number, &action, nullptr);
}

}  // namespace

const std::atomic<bool>* SetUpProcess() {
  Handle(SIGTERM, OnTerminate, SA_RESTART);
  Handle(SIGINT, SIG_IGN, 0);
  Handle(SIGHUP, SIG_IGN, 0);
  // Batch schedulers may send these to every process of a job; the daemon has us stop.
  Handle(SIGUSR1, SIG_IGN, 0);
  Handle(SIGUSR2, SIG_IGN, 0);
  Handle(SIGPIPE, SIG_IGN, 0);
  for (const int crash : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGILL}) {
    Handle(crash, OnCrash, SA_RESETHAND | SA_NODEFER);
  }
  const struct rlimit none {};
  setrlimit(RLIMIT_CORE, &none);
  return &stop_requested;
}

}  // namespace penstock::server
