// What the services share: the queues and the objects that belong to them.
#pragma once

#include <functional>

#include "penstock/v1/admin_service.pb.h"
#include "server/jobs/admin_manager.h"
#include "server/jobs/calibrator.h"
#include "server/jobs/checkpoint_manager.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/job_moves.h"
#include "server/jobs/task_queue.h"
#include "server/jobs/worker_manager.h"
#include "server/jobs/worker_reports.h"
#include "server/rpc/watch_streams.h"
#include "server/store/state_directory.h"

namespace penstock::server {

struct ServiceContext {
  TaskQueue& control;     // manager, checkpoints and reports belong to it
  TaskQueue& validation;  // slow checks, deleting files
  TaskQueue& streams;     // reading metric and log files
  TaskQueue& inspection;  // reading the data of a spec
  JobManager& manager;
  AdminManager& admin;
  JobMoves& moves;
  CheckpointManager& checkpoints;
  WorkerReports& reports;
  WatchStreams& watches;
  const StateDirectory& directory;
  WorkerManager& workers;
  const DeviceRegistry& devices;
  const Calibrator& calibrator;           // runs on `calibration`
  TaskQueue& calibration;                 // measuring a device
  SpecPlanner planner;                    // runs on `validation`
  DataInspector inspector;                // runs on `inspection`
  OutputChecker output_checker;           // runs on `validation`
  v1::GetServerInfoResponse server_info;  // what does not change
};

}  // namespace penstock::server
