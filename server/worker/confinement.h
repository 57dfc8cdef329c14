// What a worker cannot do, whatever a model or a file makes of it: reach a network, gain rights,
// look into other processes, change the system. It keeps what its work needs: files, memory,
// devices, and unix sockets, over which it talks to the daemon.
#pragma once

#include "absl/status/status.h"

namespace penstock::server {

// Of all threads of the process, those that run already too, and for good. An error says what the
// kernel does not allow; the process then is as it was, or cannot gain rights at least.
absl::Status ConfineProcess();

}  // namespace penstock::server
