#include "client/job_text.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/device_text.h"
#include "client/output.h"
#include "engine/base/units.h"
#include "proto/message_print.h"

namespace penstock::client {
namespace {

std::string StepText(const v1::JobProgress& progress) {
  if (progress.total_steps() == 0) return "-";
  return absl::StrCat(progress.step(), "/", progress.total_steps());
}

std::string LossText(const v1::JobProgress& progress) {
  return progress.step() > 0 ? FormatLoss(progress.loss()) : "-";
}

std::string ClassesText(const google::protobuf::RepeatedPtrField<v1::MemoryClass>& classes) {
  std::vector<std::string> words;
  for (const v1::MemoryClass& memory_class : classes) {
    words.push_back(absl::StrCat(memory_class.name(), " ", FormatBytes(memory_class.bytes())));
  }
  return absl::StrJoin(words, ", ");
}

std::string PlanText(const v1::JobPlan& plan) {
  if (plan.host_peak_bytes() == 0) return "";
  return absl::StrCat(FormatBytes(plan.host_peak_bytes()), " of host memory (",
                      ClassesText(plan.classes()), ")");
}

std::string PhaseText(const v1::PhasePlan& part) {
  std::string text = absl::StrCat(part.name(), ": ", FormatBytes(part.host_bytes()), " of host");
  if (part.device_bytes() > 0) {
    absl::StrAppend(&text, ", ", FormatBytes(part.device_bytes()), " of device");
  }
  return absl::StrCat(text, " memory (", ClassesText(part.classes()), ")");
}

std::string EstimateText(const v1::JobEstimate& estimate) {
  if (estimate.steps() == 0) return "";
  constexpr double kJoulesPerKilowattHour = 3.6e6;
  return absl::StrFormat("%s%d steps in %s, about %.3g kWh",
                         estimate.steps_estimated() ? "about " : "", estimate.steps(),
                         FormatDuration(estimate.seconds()),
                         estimate.energy_joules() / kJoulesPerKilowattHour);
}

std::string DevicePlanText(const v1::JobPlan& plan) {
  if (plan.device_bytes() == 0) return "";
  return absl::StrCat(FormatBytes(plan.device_bytes()), " of device memory (",
                      ClassesText(plan.device_classes()), "); ",
                      FormatBytes(plan.locked_host_bytes()), " of host memory locked");
}

std::string SpeedText(const v1::JobPlan& plan) {
  if (plan.predicted_step_seconds() <= 0) return "";
  return absl::StrFormat("%.3g s a step, %s tokens/s, by the rates of %s",
                         plan.predicted_step_seconds(),
                         FormatCount(plan.predicted_tokens_per_second()), plan.machine_profile());
}

// What a plan says, of a job or alone.
void AddPlanFacts(const v1::JobPlan& plan, Facts& facts) {
  facts.Add("Policy", plan.policy());
  facts.Add("Predicted", SpeedText(plan));
  facts.Add("Whole job", EstimateText(plan.estimate()));
  facts.Add("Memory plan", PlanText(plan));
  facts.Add("Device plan", DevicePlanText(plan));
  if (plan.parameters() > 0) {
    facts.Add("Parameters", FormatCount(static_cast<double>(plan.parameters())));
  }
}

std::string ValidationText(const v1::Checkpoint& checkpoint) {
  return checkpoint.has_validation_loss() ? FormatLoss(checkpoint.validation_loss()) : "-";
}

}  // namespace

std::string StateName(v1::JobState state) {
  return ShortEnumName(*v1::JobState_descriptor(), state);
}

bool HasEnded(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_SUCCEEDED || job.state() == v1::JOB_STATE_FAILED ||
         job.state() == v1::JOB_STATE_CANCELLED;
}

std::string PlanMissedText(const v1::PlanMissed& missed) {
  const double share = missed.measured_step_seconds() / missed.predicted_step_seconds() - 1;
  std::string text = absl::StrFormat(
      "not as planned up to step %d: steps take %.4g s, %.0f%% %s than the %.4g s predicted by the "
      "rates of %s",
      missed.step(), missed.measured_step_seconds(), 100 * std::abs(share),
      share > 0 ? "more" : "less", missed.predicted_step_seconds(), missed.machine_profile());
  if (missed.host_peak_bytes() > missed.planned_host_peak_bytes()) {
    absl::StrAppend(&text, "; ", FormatBytes(missed.host_peak_bytes()), " of host memory, ",
                    FormatBytes(missed.planned_host_peak_bytes()), " planned");
  }
  return text;
}

std::string PlanPage(const v1::JobPlan& plan, bool explain) {
  Facts facts;
  AddPlanFacts(plan, facts);
  facts.Add("Bound by", plan.bottleneck());
  facts.Add("Rounding", plan.rounding());
  for (const v1::PlanAlternative& setting : plan.settings()) {
    facts.Add("Faster with", absl::StrCat(setting.choice(), " (", setting.effect(), ")"));
  }
  for (const v1::PhasePlan& part : plan.phases()) {
    if (explain) facts.Add("Memory of", PhaseText(part));
  }
  for (const v1::PlanAlternative& other : plan.runners_up()) {
    if (explain) facts.Add("Not chosen", absl::StrCat(other.choice(), ": ", other.effect()));
  }
  return facts.ToText();
}

std::string JobsTable(const google::protobuf::RepeatedPtrField<v1::Job>& jobs) {
  Table table({"NAME", "STATE", "STEP", "LOSS", "TOKENS/S", "ETA", "CREATED", "TITLE"});
  for (const v1::Job& job : jobs) {
    const v1::JobProgress& progress = job.progress();
    const bool active = job.state() == v1::JOB_STATE_RUNNING;
    const std::string place =
        job.queue_position() > 0 ? absl::StrCat(" #", job.queue_position()) : "";
    table.Add({job.name(), StateName(job.state()) + place, StepText(progress), LossText(progress),
               active ? FormatCount(progress.tokens_per_second()) : "-",
               active && progress.remaining_seconds() > 0
                   ? FormatDuration(progress.remaining_seconds())
                   : "-",
               FormatTime(job.create_time()),
               job.has_export_() ? absl::StrCat("export of ", job.export_().checkpoint())
                                 : job.train().display_name()});
  }
  return table.ToText();
}

std::string SweepTable(const v1::CreateSweepResponse& sweep) {
  if (sweep.jobs().empty()) return "";
  std::vector<std::string> header{"NAME"};
  for (const v1::SweepValue& value : sweep.jobs(0).values()) header.push_back(value.field());
  header.insert(header.end(), {"HOST_MEMORY", "TIME"});
  Table table(std::move(header));
  for (const v1::SweepJob& job : sweep.jobs()) {
    std::vector<std::string> row{job.name().empty() ? "-" : job.name()};
    for (const v1::SweepValue& value : job.values()) row.push_back(value.value());
    row.push_back(FormatBytes(job.host_peak_bytes()));
    row.push_back(job.estimate().seconds() > 0 ? FormatDuration(job.estimate().seconds()) : "-");
    table.Add(std::move(row));
  }
  return table.ToText();
}

std::string JobPage(const v1::Job& job) {
  const v1::JobProgress& progress = job.progress();
  Facts facts;
  facts.Add("Job", job.name());
  facts.Add("Owner", job.owner());
  if (job.state() != v1::JOB_STATE_UNSPECIFIED) facts.Add("State", StateName(job.state()));
  if (job.state_reason() != v1::STATE_REASON_UNSPECIFIED) {
    facts.Add("Reason", ShortEnumName(*v1::StateReason_descriptor(), job.state_reason()));
  }
  facts.Add("Message", job.state_message());
  if (job.queue_position() > 0) facts.Add("Queue position", absl::StrCat(job.queue_position()));
  facts.Add("Sweep", job.sweep_point().sweep());
  for (const v1::SweepValue& value : job.sweep_point().values()) {
    facts.Add("Swept", absl::StrCat(value.field(), "=", value.value()));
  }
  facts.Add("Error", job.error().message());
  facts.Add("Attempt", job.attempt() > 0 ? absl::StrCat(job.attempt()) : "");
  if (progress.total_steps() > 0) {
    facts.Add("Step", StepText(progress));
    facts.Add("Loss", LossText(progress));
    if (progress.validation_loss() > 0) {
      facts.Add("Validation loss", FormatLoss(progress.validation_loss()));
    }
    facts.Add("Tokens", FormatCount(static_cast<double>(progress.real_tokens())));
  }
  facts.Add("Created", FormatTime(job.create_time()));
  facts.Add("Started", FormatTime(job.start_time()));
  facts.Add("Ended", FormatTime(job.end_time()));
  if (job.has_not_before()) facts.Add("Not before", FormatTime(job.not_before()));
  if (job.preemptions() > 0) facts.Add("Preemptions", absl::StrCat(job.preemptions()));
  facts.Add("Device", job.device());
  facts.Add("Device now", ReadingText(progress.device_reading()));
  facts.Add("Failed devices", absl::StrJoin(job.failed_devices(), ", "));
  AddPlanFacts(job.plan(), facts);
  for (const std::string& artifact : job.artifacts()) facts.Add("Artifact", artifact);
  for (const std::string& warning : job.warnings()) facts.Add("Warning", warning);
  std::string text = facts.ToText();
  for (const std::string& line : job.last_log_lines()) {
    absl::StrAppend(&text, "  | ", Printable(line), "\n");
  }
  if (job.has_train()) absl::StrAppend(&text, "\n", MessageToYaml(job.train()));
  if (job.has_export_()) absl::StrAppend(&text, "\n", MessageToYaml(job.export_()));
  return text;
}

std::string MetricsTable(const google::protobuf::RepeatedPtrField<v1::StepMetrics>& points) {
  Table table(
      {"STEP", "EPOCH", "LOSS", "VALIDATION", "GRAD_NORM", "CLIP", "LR", "TOKENS/S", "OUTCOME"});
  for (const v1::StepMetrics& point : points) {
    if (point.has_evaluation()) {
      table.Add({absl::StrCat(point.step()), "-", "-", FormatLoss(point.evaluation().loss()), "-",
                 "-", "-", "-", "evaluation"});
      continue;
    }
    table.Add(
        {absl::StrCat(point.step()), absl::StrCat(point.epoch()), FormatLoss(point.loss()), "-",
         absl::StrFormat("%.4g", point.grad_norm()), absl::StrFormat("%.3g", point.clip_scale()),
         absl::StrFormat("%.3g", point.learning_rate()), FormatCount(point.tokens_per_second()),
         ShortEnumName(*v1::StepOutcome_descriptor(), point.outcome())});
  }
  return table.ToText();
}

std::string CheckpointPage(const v1::Checkpoint& checkpoint) {
  Facts facts;
  facts.Add("Checkpoint", checkpoint.name());
  facts.Add("Step", absl::StrCat(checkpoint.step()));
  facts.Add("Loss", FormatLoss(checkpoint.loss()));
  facts.Add("Validation loss", ValidationText(checkpoint));
  facts.Add("Size", FormatBytes(checkpoint.bytes()));
  facts.Add("Created", FormatTime(checkpoint.create_time()));
  facts.Add("Written in", absl::StrFormat("%.3g s, of which training waited %.3g s",
                                          checkpoint.write_seconds(), checkpoint.wait_seconds()));
  facts.Add("Attempt", absl::StrCat(checkpoint.attempt()));
  facts.Add("Pinned", checkpoint.pinned() ? "yes" : "no");
  facts.Add("Directory", checkpoint.directory());
  facts.Add("Provenance", checkpoint.provenance_sha256());
  return facts.ToText();
}

std::string CheckpointsTable(
    const google::protobuf::RepeatedPtrField<v1::Checkpoint>& checkpoints) {
  Table table({"NAME", "STEP", "LOSS", "VALIDATION", "SIZE", "CREATED", "PINNED", "DIRECTORY"});
  for (const v1::Checkpoint& checkpoint : checkpoints) {
    table.Add({checkpoint.name(), absl::StrCat(checkpoint.step()), FormatLoss(checkpoint.loss()),
               ValidationText(checkpoint), FormatBytes(checkpoint.bytes()),
               FormatTime(checkpoint.create_time()), checkpoint.pinned() ? "yes" : "-",
               checkpoint.directory()});
  }
  return table.ToText();
}

std::string StateText(const v1::Job& job) {
  std::string text = absl::StrCat(job.name(), " ", StateName(job.state()));
  if (job.state_reason() != v1::STATE_REASON_UNSPECIFIED) {
    absl::StrAppend(&text, " (", ShortEnumName(*v1::StateReason_descriptor(), job.state_reason()),
                    ")");
  }
  if (!job.state_message().empty()) absl::StrAppend(&text, ": ", job.state_message());
  return text;
}

std::string MetricText(const v1::StepMetrics& metrics) {
  if (metrics.has_evaluation()) {
    return absl::StrCat("evaluation after step ", metrics.step(), ": loss ",
                        FormatLoss(metrics.evaluation().loss()), " perplexity ",
                        absl::StrFormat("%.4g", metrics.evaluation().perplexity()));
  }
  std::string text =
      absl::StrFormat("step %d epoch %d loss %s grad_norm %.4g lr %.3g %s tokens/s", metrics.step(),
                      metrics.epoch(), FormatLoss(metrics.loss()), metrics.grad_norm(),
                      metrics.learning_rate(), FormatCount(metrics.tokens_per_second()));
  if (metrics.outcome() != v1::STEP_OUTCOME_APPLIED) {
    absl::StrAppend(&text, " ", ShortEnumName(*v1::StepOutcome_descriptor(), metrics.outcome()));
  }
  return text;
}

std::string EndText(const v1::Job& job) {
  std::string text = absl::StrCat(Printable(StateText(job)), "\n");
  if (job.state() == v1::JOB_STATE_FAILED) {
    absl::StrAppend(&text, "error: ", Printable(job.error().message()), "\n");
    for (const std::string& line : job.last_log_lines()) {
      absl::StrAppend(&text, "  | ", Printable(line), "\n");
    }
  } else if (job.progress().step() > 0) {
    absl::StrAppend(&text, "step ", StepText(job.progress()), ", loss ", LossText(job.progress()));
    if (job.progress().validation_loss() > 0) {
      absl::StrAppend(&text, ", validation loss ", FormatLoss(job.progress().validation_loss()));
    }
    absl::StrAppend(&text, "\n");
  }
  for (const std::string& artifact : job.artifacts()) {
    absl::StrAppend(&text, "made ", Printable(artifact), "\n");
  }
  return text;
}

}  // namespace penstock::client
