// Records of the engine as messages of the API.
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine.h"
#include "penstock/v1/admin_service.pb.h"
#include "penstock/v1/checkpoint.pb.h"
#include "penstock/v1/job.pb.h"

namespace penstock::server {

v1::MachineProfile ToProto(const MeasuredProfile& measured);
v1::JobPlan ToProto(const MemoryPlanSummary& plan);
// Lists at most 20 notes of a kind.
v1::InspectDataResponse ToProto(const DataInspection& inspection);
v1::JobPhase ToProto(Phase phase);
v1::Device ToProto(const CpuInfo& cpu);

// `time` and `attempt` are the caller's.
v1::StepMetrics ToProto(const StepRecord& record);
// A point that holds an evaluation and nothing of a step.
v1::StepMetrics ToProto(const EvaluationRecord& record);
// `job` is jobs/{id}. `create_time` is the caller's.
v1::Checkpoint ToProto(const CheckpointRecord& record, const std::string& job, int32_t attempt);

ExportElement ToExportElement(v1::ExportType type);
PageLock ToPageLock(v1::PageLock lock);

}  // namespace penstock::server
