#include "server/spec/convert.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace penstock::server {

namespace {

v1::DataExample ToProto(const InspectedExample& shown) {
  v1::DataExample example;
  example.set_location(shown.location);
  example.set_tokens(shown.tokens);
  example.set_learned_tokens(shown.learned_tokens);
  for (const InspectedExample::Segment& segment : shown.segments) {
    v1::DataExample::Segment& proto = *example.add_segments();
    proto.set_learned(segment.learned);
    proto.set_text(segment.text);
    proto.mutable_ids()->Assign(segment.ids.begin(), segment.ids.end());
  }
  example.set_omitted_tokens(shown.omitted_tokens);
  return example;
}

// v1::DataNoteKind has the kinds in the same order, after its zero.
static_assert(static_cast<int>(NoteKind::kBadRow) + 1 == v1::DATA_NOTE_KIND_BAD_ROW &&
              static_cast<int>(NoteKind::kTooLong) + 1 == v1::DATA_NOTE_KIND_TOO_LONG &&
              static_cast<int>(NoteKind::kNothingToLearn) + 1 ==
                  v1::DATA_NOTE_KIND_NOTHING_TO_LEARN &&
              static_cast<int>(NoteKind::kTruncated) + 1 == v1::DATA_NOTE_KIND_TRUNCATED &&
              static_cast<int>(NoteKind::kFact) + 1 == v1::DATA_NOTE_KIND_FACT);

}  // namespace

v1::MachineProfile ToProto(const MeasuredProfile& measured) {
  const MachineProfile& rates = measured.profile.rates;
  v1::MachineProfile proto;
  proto.set_identity(measured.identity);
  proto.set_measuring_seconds(measured.measuring_seconds);
  const auto add = [&](const char* name, double value, const char* unit) {
    v1::MachineProfile::Rate& rate = *proto.add_rates();
    rate.set_name(name);
    rate.set_value(value);
    rate.set_unit(unit);
  };
  add("matmul, large", rates.matmul_flops, "FLOP/s");
  add("matmul, operands and result", rates.matmul_bytes, "B/s");
  add("attention forward, 1,024 tokens", rates.attention_forward_flops, "FLOP/s");
  add("attention backward, 1,024 tokens", rates.attention_backward_flops, "FLOP/s");
  add("attention forward, 4,096 tokens", rates.long_attention_forward_flops, "FLOP/s");
  add("attention backward, 4,096 tokens", rates.long_attention_backward_flops, "FLOP/s");
  add("device memory", rates.device_bytes, "B/s");
  add("copies to the device", rates.copy_in_bytes, "B/s");
  add("copies from the device", rates.copy_out_bytes, "B/s");
  add("copies to the device, beside others", rates.copy_in_bytes * rates.copy_in_share_beside_out,
      "B/s");
  add("copies from the device, beside others",
      rates.copy_out_bytes * rates.copy_out_share_beside_in, "B/s");
  add("copies to the device, beside AdamW", rates.copy_in_bytes * rates.copy_in_share_beside_adamw,
      "B/s");
  add("copies from the device, beside AdamW",
      rates.copy_out_bytes * rates.copy_out_share_beside_adamw, "B/s");
  add("AdamW on the host", rates.adamw_parameters, "parameters/s");
  add("host memory, AdamW and copies", rates.host_bytes, "B/s");
  add("storage, read", rates.storage_read_bytes, "B/s");
  add("storage, written", rates.storage_write_bytes, "B/s");
  return proto;
}

v1::JobPlan ToProto(const MemoryPlanSummary& plan) {
  v1::JobPlan proto;
  proto.set_host_peak_bytes(plan.host_peak_bytes);
  proto.set_parameters(plan.parameters);
  const auto fill = [](const std::vector<MemoryPlanSummary::Entry>& classes, auto& entries) {
    for (const MemoryPlanSummary::Entry& memory_class : classes) {
      v1::MemoryClass& entry = *entries.Add();
      entry.set_name(memory_class.name);
      entry.set_bytes(memory_class.bytes);
    }
  };
  for (const MemoryPlanSummary::PhaseMemory& part : plan.phases) {
    v1::PhasePlan& entry = *proto.add_phases();
    entry.set_phase(ToProto(part.phase));
    entry.set_name(part.name);
    entry.set_host_bytes(part.host_bytes);
    entry.set_device_bytes(part.device_bytes);
    fill(part.classes, *entry.mutable_classes());
  }
  fill(plan.classes, *proto.mutable_classes());
  proto.set_device_bytes(plan.device_bytes);
  fill(plan.device_classes, *proto.mutable_device_classes());
  proto.set_locked_host_bytes(plan.locked_bytes);
  proto.set_policy(plan.policy);
  proto.set_rounding(plan.rounding);
  const StepPrediction& prediction = plan.prediction;
  proto.set_predicted_step_seconds(prediction.step_seconds);
  proto.set_predicted_tokens_per_second(prediction.tokens_per_second);
  proto.set_bottleneck(prediction.bottleneck);
  proto.set_machine_profile(prediction.machine);
  const auto fill_others = [](const std::vector<StepPrediction::Other>& others, auto& entries) {
    for (const StepPrediction::Other& other : others) {
      v1::PlanAlternative& entry = *entries.Add();
      entry.set_choice(other.words);
      entry.set_effect(other.effect);
    }
  };
  fill_others(prediction.runners_up, *proto.mutable_runners_up());
  fill_others(prediction.settings, *proto.mutable_settings());
  if (plan.estimate.steps > 0) {
    v1::JobEstimate& estimate = *proto.mutable_estimate();
    estimate.set_steps(plan.estimate.steps);
    estimate.set_steps_estimated(plan.estimate.steps_estimated);
    estimate.set_seconds(plan.estimate.seconds);
    estimate.set_energy_joules(plan.estimate.joules);
  }
  return proto;
}

v1::InspectDataResponse ToProto(const DataInspection& inspection) {
  constexpr size_t kMaxNotes = 20;
  const DataReport& report = inspection.report;
  v1::InspectDataResponse proto;
  proto.set_documents(report.documents);
  proto.set_tokens(report.tokens);
  proto.set_learned_tokens(report.labelled_tokens);
  proto.set_rows_per_epoch(report.rows_per_epoch);
  proto.set_steps_per_epoch(report.steps_per_epoch);
  proto.set_padding_fraction(report.padding_fraction);
  for (const LengthBucket& bucket : inspection.lengths) {
    v1::LengthBucket& length = *proto.add_lengths();
    length.set_up_to_tokens(bucket.up_to);
    length.set_documents(bucket.documents);
    length.set_tokens(bucket.tokens);
  }
  for (int kind = 0; kind < kNoteKinds; ++kind) {
    const DataReport::Notes& found = report.notes[kind];
    if (found.count == 0) continue;
    v1::DataNotes& notes = *proto.add_notes();
    notes.set_kind(static_cast<v1::DataNoteKind>(kind + 1));
    notes.set_count(found.count);
    for (size_t i = 0; i < std::min(kMaxNotes, found.listed.size()); ++i) {
      v1::DataNote& note = *notes.add_first();
      note.set_location(found.listed[i].location);
      note.set_text(found.listed[i].text);
    }
  }
  for (const InspectedExample& shown : inspection.examples) *proto.add_examples() = ToProto(shown);
  for (const std::string& note : inspection.notes) proto.add_setup(note);
  for (const DataReport::Part& part : report.parts) {
    v1::DatasetShare& share = *proto.add_datasets();
    share.set_name(part.name);
    share.set_weight(part.weight);
    share.set_documents(part.documents);
    share.set_tokens(part.tokens);
    share.set_rows_per_epoch(part.epoch_rows);
  }
  return proto;
}

v1::JobPhase ToProto(Phase phase) {
  switch (phase) {
    case Phase::kData:
      return v1::JOB_PHASE_DATA;
    case Phase::kImport:
      return v1::JOB_PHASE_IMPORT;
    case Phase::kTrain:
      return v1::JOB_PHASE_TRAIN;
    case Phase::kEvaluate:
      return v1::JOB_PHASE_EVALUATE;
    case Phase::kCheckpoint:
      return v1::JOB_PHASE_CHECKPOINT;
    case Phase::kExport:
      return v1::JOB_PHASE_EXPORT;
  }
  return v1::JOB_PHASE_UNSPECIFIED;
}

v1::Device ToProto(const CpuInfo& cpu) {
  v1::Device proto;
  proto.set_id("cpu");
  proto.set_description(cpu.description);
  proto.set_kind(v1::DEVICE_KIND_CPU);
  proto.set_memory_bytes(cpu.memory_bytes);
  return proto;
}

namespace {
v1::StepOutcome ToProto(StepOutcome outcome) {
  switch (outcome) {
    case StepOutcome::kApplied:
      return v1::STEP_OUTCOME_APPLIED;
    case StepOutcome::kSkippedNonFinite:
      return v1::STEP_OUTCOME_SKIPPED_NON_FINITE;
    case StepOutcome::kSkippedNoLabels:
      return v1::STEP_OUTCOME_SKIPPED_NO_LABELS;
  }
  return v1::STEP_OUTCOME_UNSPECIFIED;
}

}  // namespace

v1::StepMetrics ToProto(const StepRecord& record) {
  v1::StepMetrics proto;
  proto.set_step(record.step);
  proto.set_epoch(record.epoch);
  proto.set_loss(record.loss);
  proto.set_labelled_tokens(record.labelled_tokens);
  proto.set_real_tokens(record.real_tokens);
  proto.set_padding_tokens(record.padding_tokens);
  proto.set_grad_norm(record.grad_norm);
  proto.set_clip_scale(record.clip_scale);
  proto.set_learning_rate(record.learning_rate);
  proto.set_step_seconds(record.step_seconds);
  proto.set_predicted_step_seconds(record.predicted_step_seconds);
  proto.set_checkpoint_wait_seconds(record.checkpoint_wait_seconds);
  proto.set_loss_z_score(record.loss_z_score);
  proto.set_host_peak_bytes(record.host_peak_bytes);
  proto.set_planned_host_peak_bytes(record.planned_host_peak_bytes);
  if (record.step_seconds > 0) {
    proto.set_tokens_per_second(static_cast<double>(record.real_tokens) / record.step_seconds);
  }
  proto.set_outcome(ToProto(record.outcome));
  proto.mutable_skipped_documents()->Assign(record.skipped_documents.begin(),
                                            record.skipped_documents.end());
  for (const auto& [lane, seconds] : record.lane_busy_seconds) {
    (*proto.mutable_lane_busy_seconds())[lane] = seconds;
  }
  return proto;
}

v1::StepMetrics ToProto(const EvaluationRecord& record) {
  v1::StepMetrics proto;
  proto.set_step(record.step);
  v1::EvaluationMetrics& evaluation = *proto.mutable_evaluation();
  evaluation.set_loss(record.loss);
  evaluation.set_perplexity(std::exp(record.loss));
  evaluation.set_labelled_tokens(record.labelled_tokens);
  evaluation.set_seconds(record.seconds);
  return proto;
}

v1::Checkpoint ToProto(const CheckpointRecord& record, const std::string& job, int32_t attempt) {
  v1::Checkpoint proto;
  proto.set_name(absl::StrCat(job, "/checkpoints/", record.step));
  proto.set_step(record.step);
  proto.set_bytes(record.bytes);
  proto.set_loss(record.loss);
  proto.set_attempt(attempt);
  proto.set_directory(record.directory);
  proto.set_write_seconds(record.write_seconds);
  proto.set_wait_seconds(record.waited_seconds);
  proto.set_provenance_sha256(record.provenance_sha256);
  if (record.evaluation_loss) proto.set_validation_loss(*record.evaluation_loss);
  return proto;
}

ExportElement ToExportElement(v1::ExportType type) {
  return type == v1::EXPORT_TYPE_BFLOAT16 ? ExportElement::kBFloat16 : ExportElement::kFloat32;
}

PageLock ToPageLock(v1::PageLock lock) {
  switch (lock) {
    case v1::PAGE_LOCK_OFF:
      return PageLock::kOff;
    case v1::PAGE_LOCK_PREFERRED:
      return PageLock::kPreferred;
    default:
      return PageLock::kRequired;
  }
}

}  // namespace penstock::server
