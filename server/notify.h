// The service manager's protocol: datagrams to the socket that NOTIFY_SOCKET names.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace penstock::server {

// Sends "READY=1", "STOPPING=1", "WATCHDOG=1" ... Does nothing if no manager asked for it; a
// manager that cannot be reached is not our trouble.
void NotifyServiceManager(const std::string& state);

// How often the manager wants WATCHDOG=1, if it wants it at all.
std::optional<std::chrono::milliseconds> WatchdogInterval();

}  // namespace penstock::server
