// What the services share: the queues and the objects that belong to them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "penstock/v1/admin_service.pb.h"
#include "server/jobs/admin_manager.h"
#include "server/jobs/calibrator.h"
#include "server/jobs/checkpoint_manager.h"
#include "server/jobs/event_hub.h"
#include "server/jobs/file_sources.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/job_moves.h"
#include "server/jobs/sweep_manager.h"
#include "server/jobs/task_queue.h"
#include "server/jobs/trace_requests.h"
#include "server/jobs/upload_manager.h"
#include "server/jobs/worker_manager.h"
#include "server/jobs/worker_reports.h"
#include "server/rpc/rpc_meter.h"
#include "server/rpc/transfer_streams.h"
#include "server/rpc/watch_streams.h"
#include "server/store/state_directory.h"
#include "server/store/upload_files.h"

namespace penstock::server {

struct ServiceContext {
  TaskQueue& control;     // manager, checkpoints and reports belong to it
  TaskQueue& validation;  // slow checks, deleting files; several threads
  TaskQueue& streams;     // reading metric and log files
  TaskQueue& inspection;  // reading the data of a spec
  TaskQueue& transfers;   // files that clients send and fetch: upload_files belongs to it
  JobManager& manager;
  SweepManager& sweeps;
  AdminManager& admin;
  JobMoves& moves;
  CheckpointManager& checkpoints;
  WorkerReports& reports;
  WatchStreams& watches;
  EventHub& hub;
  const RpcMeter& rpc_meter;
  UploadManager& uploads;
  UploadFiles& upload_files;
  FileSources& sources;
  TransferStreams& transfer_streams;
  TraceRequests& traces;
  const StateDirectory& directory;
  WorkerManager& workers;
  const DeviceRegistry& devices;
  const Calibrator& calibrator;  // runs on `calibration`
  TaskQueue& calibration;        // measuring a device
  SpecPlanner planner;           // runs on `validation`
  DataInspector inspector;       // runs on `inspection`
  OutputChecker output_checker;  // runs on `validation`
  std::vector<std::string> allowed_roots;
  v1::GetServerInfoResponse server_info;  // what does not change
};

}  // namespace penstock::server
