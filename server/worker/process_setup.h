// What a worker does to its own process before it works.
#pragma once

#include <atomic>

namespace penstock::server {

// SIGTERM sets the flag that is returned: the job then stops as if cancelled. SIGINT and SIGHUP
// are ignored: the worker belongs to no terminal, and outlives the daemon that started it. A
// crash prints one line and ends the process by its signal, which the daemon reports. No core
// files: they would be as large as the model.
//
// REQUIRES: no other thread runs yet.
const std::atomic<bool>* SetUpProcess();

}  // namespace penstock::server
