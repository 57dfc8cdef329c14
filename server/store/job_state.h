// The legal moves of a job's state: what JobStore enforces in each transaction.
//
//   from         to
//   QUEUED       STARTING
//                PAUSED | CANCELLED     asked for, or a job that it waits for failed
//   STARTING     RUNNING                the first step begins
//   STARTING,    SUCCEEDED | FAILED     exports never get to RUNNING
//   RUNNING      CANCELLING | PAUSING | YIELDING     its worker is asked to save and stop
//                QUEUED                 the worker died or never started, and attempts are left
//   CANCELLING   CANCELLED | SUCCEEDED | FAILED
//   PAUSING      PAUSED | SUCCEEDED | FAILED, or CANCELLING if that is asked for meanwhile
//   YIELDING     QUEUED | SUCCEEDED | FAILED, or PAUSING, CANCELLING
//   PAUSED       QUEUED | CANCELLED     by request
//   QUEUED, PAUSED      FAILED          the daemon cannot run it (its files are gone)
//   FAILED, CANCELLED   QUEUED          resumed by request
#pragma once

#include <string>

#include "penstock/v1/job.pb.h"

namespace penstock::server {

bool CanMove(v1::JobState from, v1::JobState to);
// SUCCEEDED, FAILED, CANCELLED.
bool IsFinal(v1::JobState state);
// CANCELLING, PAUSING, YIELDING: its worker was asked to save its last finished step and to stop.
bool IsStopping(v1::JobState state);
// STARTING, RUNNING and those: has a worker, so holds a device and memory.
bool HasWorker(v1::JobState state);
// "RUNNING"
std::string StateName(v1::JobState state);

}  // namespace penstock::server
