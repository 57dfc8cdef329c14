// The legal moves of a job's state: what JobStore enforces in each transaction.
//
//   QUEUED ──► STARTING ──► RUNNING ──► SUCCEEDED | FAILED
//     │ ▲         │ │          │ │
//     │ └─────────┘─┼──────────┘ │        worker died and attempts are left, or never started
//     │             ▼            ▼
//     ├──────► CANCELLING ◄──────┘
//     │             └──► CANCELLED | SUCCEEDED | FAILED
//     ├──► CANCELLED                      cancelled before it started
//     └──► FAILED                         the daemon cannot run it (its files are gone)
//   STARTING ──► SUCCEEDED | FAILED       ended before the first step (exports always)
//   FAILED, CANCELLED ──► QUEUED          resumed by request
#pragma once

#include <string>

#include "penstock/v1/job.pb.h"

namespace penstock::server {

bool CanMove(v1::JobState from, v1::JobState to);
// SUCCEEDED, FAILED, CANCELLED.
bool IsFinal(v1::JobState state);
// STARTING, RUNNING, CANCELLING: has a worker, so holds a device and memory.
bool HasWorker(v1::JobState state);
// "RUNNING"
std::string StateName(v1::JobState state);

}  // namespace penstock::server
