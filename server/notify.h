// The service manager's protocol: datagrams to the socket that NOTIFY_SOCKET names.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace penstock::server {

// Sends "READY=1", "STOPPING=1" ... Does nothing if no manager asked for it; a manager that cannot
// be reached is not our trouble. Waits up to 5 s for one that does not read, so not for the control
// thread.
void NotifyServiceManager(const std::string& state);

// Sends "WATCHDOG=1", or nothing if the manager has not read what it was sent before: it will
// hear the next.
void FeedWatchdog();

// Around what the manager asked for with a reload. `now` is CLOCK_MONOTONIC's, by which the manager
// knows that it is an answer to its signal, not to one before.
std::string ReloadingState(std::chrono::microseconds now);

// How often the manager wants WATCHDOG=1, if it wants it at all.
std::optional<std::chrono::milliseconds> WatchdogInterval();

}  // namespace penstock::server
