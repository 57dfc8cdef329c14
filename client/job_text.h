// Jobs, metrics and events as text for people.
#pragma once

#include <string>

#include "google/protobuf/repeated_ptr_field.h"
#include "penstock/v1/checkpoint.pb.h"
#include "penstock/v1/job.pb.h"

namespace penstock::client {

std::string JobsTable(const google::protobuf::RepeatedPtrField<v1::Job>& jobs);
// The jobs of a new sweep, with the values of each.
std::string SweepTable(const v1::CreateSweepResponse& sweep);
// Everything about one job: facts, then its spec as YAML.
std::string JobPage(const v1::Job& job);
// How a job would run, how fast, and in which memory. `explain`: and what was not chosen, and why.
// "steps take 1.3 s, 30% more than the 1 s predicted, ..."
std::string PlanMissedText(const v1::PlanMissed& missed);
std::string PlanPage(const v1::JobPlan& plan, bool explain);
std::string MetricsTable(const google::protobuf::RepeatedPtrField<v1::StepMetrics>& points);
std::string StateName(v1::JobState state);
bool HasEnded(const v1::Job& job);
std::string CheckpointPage(const v1::Checkpoint& checkpoint);
std::string CheckpointsTable(const google::protobuf::RepeatedPtrField<v1::Checkpoint>& checkpoints);

// One line: "jobs/x running", "jobs/x queued (device_busy): ...".
std::string StateText(const v1::Job& job);
// One line: "step 12 epoch 0 loss 3.2142 ..." or "evaluation after step 12: ...".
std::string MetricText(const v1::StepMetrics& metrics);
// How a job ended, in one or several lines: results, or the error with the last log lines.
std::string EndText(const v1::Job& job);

}  // namespace penstock::client
