#include "engine/train/trainer.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/plan/chrome_trace.h"
#include "engine/plan/fit_profile.h"
#include "engine/train/schedule.h"

namespace penstock {
namespace {

constexpr size_t kMaxSkippedDocuments = 64;

MicroBatchView ToView(const MicroBatch& batch) {
  return {.ids = batch.ids.data(),
          .positions = batch.positions.data(),
          .labels = batch.labels.data(),
          .document_starts = batch.document_starts.data(),
          .num_documents = static_cast<int64_t>(batch.document_starts.size()) - 1,
          .tokens = static_cast<int64_t>(batch.ids.size())};
}

int64_t PaddingTokens(const StepShape& shape, const BatchStream::Args& args) {
  return shape.micro_batches * args.rows_per_micro_batch * args.sequence_length - shape.real_tokens;
}

absl::StatusOr<std::unique_ptr<Executor>> CreateExecutor(ComputeBackend backend,
                                                         const ModelSpec& spec, HostStore& store,
                                                         const ExecutorOptions& options) {
  return backend == ComputeBackend::kCuda ? CreateCudaExecutor(spec, store, options)
                                          : CreateCpuExecutor(spec, store, options);
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(
    const TrainConfig& config, const ModelInput& model, const TrainingPlan& plan, HostStore& store,
    std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> evaluation) {
  std::unique_ptr<Trainer> trainer(new Trainer(config, model, plan, store));
  PENSTOCK_RETURN_IF_ERROR(trainer->CreateStreams(plan, std::move(train), std::move(evaluation)));
  PENSTOCK_ASSIGN_OR_RETURN(
      trainer->executor_, CreateExecutor(config.device.backend, model.spec, store, plan.executor));
  if (plan.wrap_executor) trainer->executor_ = plan.wrap_executor(std::move(trainer->executor_));
  for (const BlockPlacement& placement : plan.policy.placements) {
    trainer->state_on_device_ |= placement.HasMaster();
  }
  PENSTOCK_RETURN_IF_ERROR(trainer->PreparePrograms(model, plan));
  for (int64_t i = 0; i < plan.micro_batches; ++i) {
    trainer->buffers_.emplace_back(plan.rows_per_micro_batch, config.batch.sequence_length);
  }
  trainer->views_.resize(plan.micro_batches);
  return trainer;
}

absl::Status Trainer::CreateStreams(const TrainingPlan& plan, std::shared_ptr<const Dataset> train,
                                    std::shared_ptr<const Dataset> evaluation) {
  BatchStream::Args args{.dataset = std::move(train),
                         .sequence_length = config_.batch.sequence_length,
                         .rows_per_micro_batch = plan.rows_per_micro_batch,
                         .micro_batches_per_step = plan.micro_batches,
                         .packing = config_.data.packing,
                         .order = RowOrder::kShuffled,
                         .seed = config_.seed};
  PENSTOCK_ASSIGN_OR_RETURN(train_stream_, BatchStream::Create(args));
  total_steps_ = config_.schedule.max_steps > 0
                     ? config_.schedule.max_steps
                     : config_.schedule.epochs * train_stream_->steps_per_epoch();
  // With epochs this is the first moment at which the number of steps is known.
  if (config_.schedule.warmup_steps > total_steps_) {
    return Error(
        absl::StatusCode::kInvalidArgument, reason::kSpecInvalid,
        absl::StrCat("schedule.warmup_steps ", config_.schedule.warmup_steps,
                     " is more than the run's ", total_steps_, " steps (", config_.schedule.epochs,
                     " epochs of ", train_stream_->steps_per_epoch(),
                     "): the peak rate would never be reached; lower it"),
        {{"field", "schedule.warmup_steps"}});
  }
  if (evaluation == nullptr) return absl::OkStatus();
  args.dataset = std::move(evaluation);
  args.micro_batches_per_step = 1;
  args.order = RowOrder::kSequential;
  PENSTOCK_ASSIGN_OR_RETURN(evaluation_stream_, BatchStream::Create(args));
  return absl::OkStatus();
}

absl::Status Trainer::PreparePrograms(const ModelInput& model, const TrainingPlan& plan) {
  PENSTOCK_ASSIGN_OR_RETURN(full_program_, TrainProgram(model, plan, plan.micro_batches));
  PENSTOCK_RETURN_IF_ERROR(executor_->Prepare(full_program_));
  const int64_t tail =
      train_stream_->ShapeOfStep(train_stream_->steps_per_epoch() - 1).micro_batches;
  if (tail != plan.micro_batches) {
    PENSTOCK_ASSIGN_OR_RETURN(tail_program_, TrainProgram(model, plan, tail));
    PENSTOCK_RETURN_IF_ERROR(executor_->Prepare(tail_program_));
  }
  PENSTOCK_ASSIGN_OR_RETURN(evaluation_program_, EvaluationProgram(model, plan));
  PENSTOCK_ASSIGN_OR_RETURN(load_program_, LoadProgram(model, plan));
  PENSTOCK_ASSIGN_OR_RETURN(settle_for_evaluation_,
                            SettleProgram(model, plan, SettleGoal::kEvaluate));
  PENSTOCK_ASSIGN_OR_RETURN(settle_store_, SettleProgram(model, plan, SettleGoal::kReadStore));
  for (const StepProgram* program :
       {&evaluation_program_, &load_program_, &settle_for_evaluation_, &settle_store_}) {
    if (!program->ops.empty()) PENSTOCK_RETURN_IF_ERROR(executor_->Prepare(*program));
  }
  return RunIfAny(load_program_);
}

absl::Status Trainer::RunIfAny(const StepProgram& program) {
  if (program.ops.empty()) return absl::OkStatus();
  StepResult result;
  return executor_->Run(program, {.micro_batches = {}, .gate = gate_}, result);
}

absl::Status Trainer::SettleStore() {
  PENSTOCK_RETURN_IF_ERROR(RunIfAny(settle_store_));
  update_waits_ = false;
  return absl::OkStatus();
}

std::optional<int64_t> Trainer::StepInStore() const {
  if (state_on_device_ || store_.updating) return std::nullopt;
  return steps_done_ - (update_waits_ ? 1 : 0);
}

absl::StatusOr<StepRecord> Trainer::Step(int64_t step) {
  const auto start = std::chrono::steady_clock::now();
  const int64_t data_step = data_.DataStep(step);
  const StepShape shape = train_stream_->ShapeOfStep(data_step);
  for (int64_t i = 0; i < shape.micro_batches; ++i) {
    train_stream_->Fill(data_step, i, buffers_[i]);
    views_[i] = ToView(buffers_[i].view());
  }
  const double rate =
      LearningRate(config_.schedule, config_.optimizer.learning_rate, total_steps_, step);
  const StepInput input{.micro_batches = std::span(views_).first(shape.micro_batches),
                        .labelled_tokens = shape.labelled_tokens,
                        .optimizer = {.learning_rate = rate,
                                      .beta1 = config_.optimizer.beta1,
                                      .beta2 = config_.optimizer.beta2,
                                      .epsilon = config_.optimizer.epsilon,
                                      .weight_decay = config_.optimizer.weight_decay,
                                      .max_grad_norm = config_.optimizer.max_grad_norm,
                                      .rounding_seed = config_.seed},
                        .gate = gate_};
  const bool full = shape.micro_batches == full_program_.micro_batches;
  StepResult result;
  const StepProgram& program = full ? full_program_ : tail_program_;
  PENSTOCK_RETURN_IF_ERROR(executor_->Run(program, input, result));
  steps_done_ = step + 1;
  update_waits_ = program.updates == Updates::kPending;

  StepRecord record{.step = step + 1,
                    .epoch = shape.epoch,
                    .labelled_tokens = result.labelled_tokens,
                    .real_tokens = shape.real_tokens,
                    .padding_tokens = PaddingTokens(shape, train_stream_->args()),
                    .grad_norm = result.decision.grad_norm,
                    .clip_scale = result.decision.clip_scale,
                    .learning_rate = rate,
                    .outcome = result.decision.outcome};
  if (result.labelled_tokens > 0) {
    record.loss = result.loss_sum / static_cast<double>(result.labelled_tokens);
  }
  if (record.outcome != StepOutcome::kApplied) {
    record.skipped_documents = train_stream_->DocumentsOfStep(data_step);
    if (record.skipped_documents.size() > kMaxSkippedDocuments) {
      record.skipped_documents.resize(kMaxSkippedDocuments);
    }
  }
  for (int lane = 0; lane < kLaneCount; ++lane) {
    record.lane_busy_seconds[LaneName(static_cast<Lane>(lane))] = result.busy_seconds[lane];
  }
  record.step_seconds = SecondsSince(start);
  return record;
}

const StepProgram& Trainer::ProgramOfLastStep() const {
  return IsFullStep(steps_done_ - 1) ? full_program_ : tail_program_;
}

std::vector<SimulatedOp> Trainer::TimelineOfLastStep() const {
  std::vector<SimulatedOp> timeline;
  for (const OpTime& time : executor_->timeline()) {
    timeline.push_back({.start = static_cast<double>(time.start_ns) * 1e-9,
                        .end = static_cast<double>(time.end_ns) * 1e-9});
  }
  return timeline;
}

std::string Trainer::TraceOfLastStep() const {
  return ChromeTrace(ProgramOfLastStep(), TimelineOfLastStep(),
                     absl::StrCat("measured: step ", steps_done_));
}

MachineProfile Trainer::RatesOfLastStep(const MachineProfile& known) const {
  const MeasuredProgram run = {ProgramOfLastStep(), spec_, store_.layout(), cost_,
                               TimelineOfLastStep()};
  return FitProfile({&run, 1}, known);
}

absl::StatusOr<EvaluationRecord> Trainer::Evaluate(
    int64_t step, absl::FunctionRef<absl::Status(double fraction)> progress) {
  const auto start = std::chrono::steady_clock::now();
  PENSTOCK_RETURN_IF_ERROR(RunIfAny(settle_for_evaluation_));
  update_waits_ = false;
  const int64_t micro_batches = evaluation_stream_->steps_per_epoch();
  double loss_sum = 0;
  int64_t labelled_tokens = 0, tokens = 0;
  for (int64_t i = 0; i < micro_batches; ++i) {
    if (config_.evaluation.max_tokens > 0 && tokens >= config_.evaluation.max_tokens) break;
    PENSTOCK_RETURN_IF_ERROR(progress(static_cast<double>(i) / static_cast<double>(micro_batches)));
    evaluation_stream_->Fill(i, 0, buffers_[0]);
    const MicroBatch& batch = buffers_[0].view();
    // Long prompts may fill some, and these would use up max_tokens.
    if (batch.labelled_tokens == 0) continue;
    views_[0] = ToView(batch);
    StepResult result;
    PENSTOCK_RETURN_IF_ERROR(executor_->Run(
        evaluation_program_,
        {.micro_batches = std::span(views_).first(1), .labelled_tokens = batch.labelled_tokens},
        result));
    loss_sum += result.loss_sum;
    labelled_tokens += result.labelled_tokens;
    tokens += batch.real_tokens;
  }
  return EvaluationRecord{
      .step = step,
      .loss = labelled_tokens > 0 ? loss_sum / static_cast<double>(labelled_tokens) : 0,
      .labelled_tokens = labelled_tokens,
      .seconds = SecondsSince(start)};
}

}  // namespace penstock
