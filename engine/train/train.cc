// Train(): a job from its data to its export, as a list of phases.
//
// A wish to stop ends any phase through the status that its progress call returns; steps are
// never cut. What is written (checkpoint, export) is either complete or not there.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/base/units.h"
#include "engine/base/version.h"
#include "engine/data/report.h"
#include "engine/engine.h"
#include "engine/exec/gpu_devices.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/train/checkpoint.h"
#include "engine/train/export.h"
#include "engine/train/exported_template.h"
#include "engine/train/import.h"
#include "engine/train/job_checkpoints.h"
#include "engine/train/job_encoding.h"
#include "engine/train/left_out_data.h"
#include "engine/train/loss_watch.h"
#include "engine/train/plan_watch.h"
#include "engine/train/policy_choice.h"
#include "engine/train/random_init.h"
#include "engine/train/run_facts.h"
#include "engine/train/run_provenance.h"
#include "engine/train/run_saves.h"
#include "engine/train/train_with_plan.h"
#include "engine/train/trainer.h"
#include "engine/train/training_plan.h"
#include "engine/train/untrained_rows.h"
#include "engine/train/usable_cores.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

// Of device memory, beside the context that the GPU's free bytes are without: workspaces of
// libraries, and what an allocator loses at the edges.
constexpr int64_t kLibraryBytes = int64_t{512} << 20;

absl::Status Stopped() { return absl::CancelledError("stop requested"); }

// Progress of a phase measured in bytes, with the question whether to stop.
auto ByteProgress(TrainObserver& observer, Phase phase) {
  return [&observer, phase](int64_t done, int64_t total) {
    observer.OnPhase(phase, total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1);
    return observer.Ask() == Wish::kStop ? Stopped() : absl::OkStatus();
  };
}

class TrainRun {
 public:
  TrainRun(const TrainConfig& config, const PlanChange& change, TrainObserver& observer)
      : config_(config),
        change_plan_(change),
        observer_(observer),
        loss_watch_(config.loss_spikes.threshold) {}

  absl::StatusOr<TrainSummary> Run() {
    PENSTOCK_RETURN_IF_ERROR(OpenDevice());
    PENSTOCK_RETURN_IF_ERROR(OpenInputs());
    PENSTOCK_RETURN_IF_ERROR(OpenData());
    PENSTOCK_RETURN_IF_ERROR(FillStore());
    PENSTOCK_RETURN_IF_ERROR(CreateTrainer());
    CreateSaves();
    absl::Status trained = Steps();
    if (trained.ok() && summary_.end == TrainEnd::kRolledBack) return summary_;
    if (trained.ok()) trained = SaveCheckpoint();
    saves_->Finish();  // what was begun is whole, however training has ended
    if (ReasonOf(trained) == reason::kDeviceFailed) SaveWhatTheStoreHolds();
    PENSTOCK_RETURN_IF_ERROR(trained);
    if (summary_.end == TrainEnd::kFinished) PENSTOCK_RETURN_IF_ERROR(Export());
    if (summary_.output_directory.empty()) PENSTOCK_RETURN_IF_ERROR(saves_->error());
    summary_.steps = steps_done_;
    return summary_;
  }

  bool stopped() const { return observer_.Ask() == Wish::kStop; }

 private:
  absl::Status OpenInputs() {
    PENSTOCK_ASSIGN_OR_RETURN(model_, OpenModelInput(config_));
    PENSTOCK_ASSIGN_OR_RETURN(provenance_, RunProvenance::Create(config_.provenance));
    provenance_->SetModel(model_);
    if (model_.directory != nullptr) {
      for (const std::string& note : model_.directory->notes()) observer_.OnLog(note);
    }
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t data_bytes, DataFileBytes(config_));
    PENSTOCK_RETURN_IF_ERROR(OpenCheckpoints());
    PENSTOCK_RETURN_IF_ERROR(MakePlan(data_bytes));
    if (change_plan_) change_plan_(model_, plan_);
    observer_.OnLog(absl::StrFormat(
        "model %s: %d parameters in %d layers; %d micro-batches of %d tokens a step, %s; %d "
        "threads; host memory %s; device memory %s; a step should take %.3g s (%s)",
        model_.spec.family, model_.layout.parameter_count, model_.spec.num_layers,
        plan_.micro_batches, config_.batch.micro_batch_tokens, plan_.memory.policy, plan_.threads,
        FormatBytes(plan_.memory.host_peak_bytes), FormatBytes(plan_.memory.device_bytes),
        plan_.memory.prediction.step_seconds, plan_.memory.prediction.machine));
    return absl::OkStatus();
  }

  absl::Status OpenCheckpoints() {
    PENSTOCK_ASSIGN_OR_RETURN(
        JobCheckpoints checkpoints,
        JobCheckpoints::Open(
            config_.checkpoint_directory,
            {.keep_last = config_.checkpoints.keep_last,
             .keep_every_steps = config_.checkpoints.keep_every_steps,
             .keep_newest_multiple_of =
                 config_.loss_spikes.roll_back ? config_.checkpoints.every_steps : 0},
            {.log = [this](const std::string& line) { observer_.OnLog(line); },
             .removed = [this](int64_t step) { observer_.OnCheckpointRemoved(step); }}));
    checkpoints_.emplace(std::move(checkpoints));
    return absl::OkStatus();
  }

  // A run that goes on keeps what changes rounding, on whatever machine and inside whatever limits
  // it goes on; the rest is planned anew.
  absl::Status MakePlan(int64_t data_bytes) {
    if (const std::optional<RunFacts> facts = checkpoints_->NewestFacts()) {
      config_.kept_rounding = SavedRounding(*facts);
    }
    absl::StatusOr<TrainingPlan> plan =
        MakeTrainingPlan(config_, model_, data_bytes, UsableHostMemory(config_));
    if (!plan.ok() && config_.kept_rounding.has_value()) {
      return Error(plan.status().code(), ReasonOf(plan.status()),
                   absl::StrCat(std::string(plan.status().message()),
                                " (a run that goes on keeps its micro-batches, chunks and, with a "
                                "tied head, rounds, so that it rounds as before; penstock fork "
                                "makes a job of its checkpoint that is planned anew)"),
                   MetadataOf(plan.status()));
    }
    PENSTOCK_ASSIGN_OR_RETURN(plan_, std::move(plan));
    return absl::OkStatus();
  }

  // Takes the GPU and lowers the plan's limit to what it has free: another process may use it too.
  absl::Status OpenDevice() {
    if (config_.device.backend == ComputeBackend::kCpu) return absl::OkStatus();
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t free_bytes, OpenGpu(config_.device.uuid));
    int64_t& limit = config_.device.memory_bytes;
    const int64_t usable = std::max<int64_t>(1, free_bytes - kLibraryBytes);
    limit = limit > 0 ? std::min(limit, usable) : usable;
    for (const GpuDevice& device : ListGpuDevices()) {
      if (config_.device.uuid.empty() || device.uuid == config_.device.uuid) {
        config_.device.card = device.name;
        break;
      }
    }
    return absl::OkStatus();
  }

  absl::Status OpenData() {
    observer_.OnPhase(Phase::kData, 0);
    PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<JobEncoding> encoding,
                              JobEncoding::Create(config_, model_));
    for (const std::string& note : encoding->notes()) observer_.OnLog(note);
    const ChatTemplateChoice& choice = config_.data.chat_template;
    const bool models_own = choice.kind == ChatTemplateChoice::Kind::kModel && choice.name.empty();
    if (encoding->chat_template() != nullptr && model_.directory != nullptr && !models_own) {
      SetChatTemplate(*encoding->chat_template(), model_.source.side_files);
    }
    const auto progress = [this](double fraction) {
      observer_.OnPhase(Phase::kData, fraction);
      return observer_.Ask() == Wish::kStop ? Stopped() : absl::OkStatus();
    };
    PENSTOCK_ASSIGN_OR_RETURN(data_, OpenJobData(config_, model_, *encoding,
                                                 {.threads = plan_.threads, .progress = progress}));
    encoding_fingerprint_ = encoding->encoder().Fingerprint();
    return absl::OkStatus();
  }

  absl::Status CreateStore() {
    store_.reset();  // Two do not fit.
    PENSTOCK_ASSIGN_OR_RETURN(store_, HostStore::Create(model_.layout, StateOf(config_.moment_type),
                                                        GradientPlaneOf(model_.spec, plan_)));
    ThreadPool pool(plan_.threads, PlacesForPool(plan_.threads));
    store_->TouchPages(pool);
    return absl::OkStatus();
  }

  // With a checkpoint of this run, or with what the model starts from.
  absl::Status FillStore() {
    observer_.OnPhase(Phase::kImport, 0);
    facts_ = MakeRunFacts(config_, model_, plan_, *data_.train);
    provenance_->SetData(data_, facts_.identity.at(kTrainingDataFact), encoding_fingerprint_);
    PENSTOCK_RETURN_IF_ERROR(CreateStore());
    const bool may_resume = checkpoints_->any();
    {
      ThreadPool pool(plan_.threads, PlacesForPool(plan_.threads));
      PENSTOCK_ASSIGN_OR_RETURN(
          const std::optional<CheckpointInfo> info,
          checkpoints_->LoadNewest(facts_, *store_, pool, ByteProgress(observer_, Phase::kImport)));
      if (info) return Resume(*info, checkpoints_->PathOf(info->step));
    }
    // A damaged checkpoint may have filled some of it.
    if (may_resume) PENSTOCK_RETURN_IF_ERROR(CreateStore());
    return config_.start_checkpoint.empty() ? LoadWeights() : StartFromOtherRun();
  }

  absl::Status StartFromOtherRun() {
    const std::string& path = config_.start_checkpoint;
    ThreadPool pool(plan_.threads, PlacesForPool(plan_.threads));
    PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> opened,
                              OpenCheckpoint(path, Verification::kSizes));
    if (!opened->has_moments()) {
      return Error(absl::StatusCode::kFailedPrecondition, reason::kCheckpointMismatch,
                   absl::StrCat(path, " holds weights alone; export it and train from the export"));
    }
    PENSTOCK_RETURN_IF_ERROR(
        LoadCheckpoint(*opened, *store_, pool, ByteProgress(observer_, Phase::kImport)));
    for (const auto& changes : {IdentityChanges(opened->info().facts, facts_),
                                RoundingChanges(opened->info().facts, facts_)}) {
      for (const std::string& change : changes) observer_.OnLog("unlike the other run: " + change);
    }
    CheckpointInfo info = opened->info();
    info.best.reset();  // what was best lies elsewhere
    return Resume(info, path);
  }

  absl::Status Resume(const CheckpointInfo& info, const std::string& path) {
    first_step_ = info.step;
    steps_done_ = info.step;
    tokens_done_ = info.tokens;
    nonfinite_streak_ = info.nonfinite_streak;
    evaluation_due_ = info.evaluation_due;
    evaluation_loss_ = info.evaluation_loss;
    best_ = info.best;
    left_out_data_steps_ = info.left_out_data_steps;
    loss_watch_.set_memory(info.loss_memory);
    loss_ = info.loss.value_or(std::numeric_limits<double>::quiet_NaN());
    provenance_->GoOnFrom(path);
    observer_.OnResumed(
        {.step = info.step, .tokens = info.tokens, .loss = info.loss, .directory = path});
    return absl::OkStatus();
  }

  absl::Status LoadWeights() {
    ThreadPool pool(plan_.threads, PlacesForPool(plan_.threads));
    if (model_.directory == nullptr) {
      provenance_->BeginWithModel(model_);
      InitializeWeights(model_.spec, config_.seed, *store_, pool);
      return absl::OkStatus();
    }
    PENSTOCK_RETURN_IF_ERROR(
        ImportWeights(*model_.directory, *store_, pool, ByteProgress(observer_, Phase::kImport)));
    provenance_->BeginWithModel(model_);  // only now: the disk is free
    const std::string untrained = ToText(FindUntrainedRows(model_.spec, *store_, *data_.train));
    if (!untrained.empty()) observer_.OnLog(untrained);
    return absl::OkStatus();
  }

  absl::Status CreateTrainer() {
    PENSTOCK_ASSIGN_OR_RETURN(
        trainer_, Trainer::Create(config_, model_, plan_, *store_, data_.train, data_.evaluation));
    PENSTOCK_ASSIGN_OR_RETURN(left_out_, ReadLeftOutData(config_.checkpoint_directory));
    data_cursor_ = DataCursor(steps_done_, left_out_data_steps_, left_out_);
    trainer_->set_data_cursor(data_cursor_);
    if (!trainer_->notice().empty()) observer_.OnLog(trainer_->notice());
    observer_.OnLog(ToText(MakeDataReport(trainer_->train_stream())));
    observer_.OnTotalSteps(trainer_->total_steps());
    if (steps_done_ > 0 && !checkpoints_->any() && steps_done_ >= trainer_->total_steps()) {
      return Error(absl::StatusCode::kFailedPrecondition, reason::kSpecInvalid,
                   absl::StrCat(config_.start_checkpoint, " is of step ", steps_done_,
                                " and the run has ", trainer_->total_steps(),
                                " in all, so nothing is left to train; raise schedule.max_steps or "
                                "epochs"),
                   {{"field", "schedule"}});
    }
    if (steps_done_ <= trainer_->total_steps()) return absl::OkStatus();
    return Error(
        absl::StatusCode::kDataLoss, reason::kCheckpointCorrupt,
        absl::StrCat(checkpoints_->PathOf(steps_done_), " is of step ", steps_done_,
                     ", but the run has ", trainer_->total_steps(), "; use another checkpoint"));
  }

  void CreateSaves() {
    saves_.emplace(RunSaves::Args{.config = config_.checkpoints,
                                  .store = *store_,
                                  .source = model_.source,
                                  .checkpoints = *checkpoints_,
                                  .observer = observer_,
                                  .provenance = *provenance_,
                                  .threads = CheckpointThreads(plan_.threads),
                                  .update_order = trainer_->update_order()});
    trainer_->set_update_gate(saves_->gate());
  }

  absl::Status Steps() {
    const int64_t total = trainer_->total_steps();
    if (evaluation_due_) PENSTOCK_RETURN_IF_ERROR(EvaluateIfDue());
    while (steps_done_ < total && !StopsEarly()) {
      if (observer_.Ask() == Wish::kStop) {
        summary_.end = TrainEnd::kStopped;
        return absl::OkStatus();
      }
      observer_.OnPhase(Phase::kTrain,
                        static_cast<double>(steps_done_) / static_cast<double>(total));
      before_last_ = std::exchange(last_, InfoNow());
      PENSTOCK_ASSIGN_OR_RETURN(StepRecord record, trainer_->Step(steps_done_));
      record.checkpoint_wait_seconds = saves_->TakeWaitedSeconds();
      ComparePrediction(record);
      const bool spike = JudgeLoss(record);
      steps_done_ = record.step;
      tokens_done_ += record.real_tokens;
      loss_ = record.loss;
      evaluation_loss_.reset();
      // Before anything can fail: whatever saves this step says that it was not evaluated.
      evaluation_due_ = IsEvaluationStep();
      observer_.OnStep(record);
      if (observer_.TakeTraceRequest()) observer_.OnStepTrace(trainer_->TraceOfLastStep());
      saves_->Collect();
      if (spike && MayRollBack() && RollBack()) return absl::OkStatus();
      PENSTOCK_RETURN_IF_ERROR(CheckStreak(record));
      PENSTOCK_RETURN_IF_ERROR(EvaluateIfDue());
      const bool wanted = observer_.TakeSaveRequest();  // asked always: it is taken by asking
      const bool improved = config_.checkpoints.keep_best && best_ && best_->step == steps_done_;
      if (steps_done_ < total && (wanted || improved || saves_->Due(steps_done_))) {
        PENSTOCK_RETURN_IF_ERROR(BeginCheckpoint());
      }
    }
    return absl::OkStatus();
  }

  // A function of what a checkpoint holds, so that a run which goes on from its last one ends there
  // again.
  bool StopsEarly() {
    const EvaluationConfig& evaluation = config_.evaluation;
    if (evaluation.early_stopping_patience == 0 || !best_) return false;
    if (!IsEvaluationStep() || evaluation_due_) return false;
    const int64_t evaluations = (steps_done_ - best_->step) / evaluation.every_steps;
    if (evaluations < evaluation.early_stopping_patience) return false;
    const double loss = evaluation_loss_.value_or(std::numeric_limits<double>::quiet_NaN());
    summary_.early_stop = absl::StrFormat(
        "stopped early: the validation loss is %.4g after step %d, and none of the last %d "
        "evaluations was below the %.4g after step %d",
        loss, steps_done_, evaluations, best_->loss, best_->step);
    observer_.OnLog(summary_.early_stop);
    return true;
  }

  void ComparePrediction(StepRecord& record) {
    host_peak_bytes_ = std::max(host_peak_bytes_, ResidentBytes());
    record.host_peak_bytes = host_peak_bytes_;
    record.planned_host_peak_bytes = plan_.memory.host_peak_bytes;
    if (!trainer_->IsFullStep(record.step - 1)) return;
    record.predicted_step_seconds = plan_.memory.prediction.step_seconds;
    std::optional<PlanMissRecord> miss = plan_watch_.Add(record);
    if (!miss.has_value()) return;
    miss->machine = plan_.memory.prediction.machine;
    NamedProfile& refitted = miss->refitted.profile;
    refitted = ProfileOf(config_, plan_.threads);
    refitted.rates = trainer_->RatesOfLastStep(refitted.rates);
    miss->refitted.identity = "refitted to a job's step";
    observer_.OnPlanMissed(*miss);
  }

  // Whether a loss spike begins with the step.
  bool JudgeLoss(StepRecord& record) {
    if (record.outcome != StepOutcome::kApplied || !std::isfinite(record.loss)) return false;
    const LossWatch::Verdict verdict = loss_watch_.Add(record.loss);
    record.loss_z_score = verdict.z_score;
    if (!verdict.begins) return false;
    observer_.OnLog(absl::StrFormat(
        "loss spike: %.4g in step %d is %.1f standard deviations above the %.4g of the steps "
        "before%s",
        record.loss, record.step, verdict.z_score, verdict.mean,
        config_.loss_spikes.roll_back
            ? ""
            : "; if it does not come down again, go on from a checkpoint before it with a lower "
              "learning rate, or let jobs roll back by themselves (loss_spikes.response)"));
    return true;
  }

  bool MayRollBack() {
    if (!config_.loss_spikes.roll_back) return false;
    const auto rollbacks = static_cast<int64_t>(left_out_.size());
    if (rollbacks < config_.loss_spikes.max_rollbacks) return true;
    observer_.OnLog(absl::StrCat("the run has rolled back ", rollbacks,
                                 " times, as often as it may; it goes on"));
    return false;
  }

  // What the steps since a checkpoint did is dropped with their data; the next process goes on from
  // there. It is one of checkpoints.every_steps, so that those which an interruption or a request
  // has made change nothing. Whether it worked.
  bool RollBack() {
    saves_->Finish();
    const absl::StatusOr<LeftOutData> left_out = GoBack();
    if (!left_out.ok()) {
      observer_.OnLog(absl::StrCat("the run cannot roll back and goes on: ",
                                   std::string(left_out.status().message())));
      return false;
    }
    observer_.OnLog(absl::StrCat("back to step ", left_out->step, "; the data of ",
                                 left_out->data_steps, " step(s) are left out"));
    summary_.end = TrainEnd::kRolledBack;
    summary_.steps = left_out->step;
    return true;
  }

  absl::StatusOr<LeftOutData> GoBack() {
    PENSTOCK_ASSIGN_OR_RETURN(std::optional<int64_t> step,
                              checkpoints_->StepToGoBackTo(config_.checkpoints.every_steps));
    if (!step) {
      PENSTOCK_ASSIGN_OR_RETURN(step, FirstStepOfTheRun());
    }
    const LeftOutData left_out{.step = *step,
                               .data_steps = data_cursor_.DataStep(steps_done_ - 1) + 1 -
                                             data_cursor_.DataStep(*step) +
                                             config_.loss_spikes.skip_steps};
    // First this: who dies in between meets the spike again.
    PENSTOCK_RETURN_IF_ERROR(checkpoints_->Supersede(*step));
    PENSTOCK_RETURN_IF_ERROR(NoteLeftOutData(config_.checkpoint_directory, left_out,
                                             static_cast<int64_t>(left_out_.size())));
    return left_out;
  }

  absl::StatusOr<int64_t> FirstStepOfTheRun() const {
    if (config_.start_checkpoint.empty()) return 0;
    PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> opened,
                              OpenCheckpoint(config_.start_checkpoint, Verification::kSizes));
    return opened->info().step;
  }

  // The weights are as good as before the streak, so they are saved before the job fails.
  absl::Status CheckStreak(const StepRecord& record) {
    nonfinite_streak_ =
        record.outcome == StepOutcome::kSkippedNonFinite ? nonfinite_streak_ + 1 : 0;
    if (nonfinite_streak_ < config_.optimizer.max_nonfinite_steps) return absl::OkStatus();
    PENSTOCK_RETURN_IF_ERROR(SaveCheckpoint());
    return Error(absl::StatusCode::kFailedPrecondition, reason::kNonFinite,
                 absl::StrCat(nonfinite_streak_,
                              " steps in a row had a gradient norm that is not finite, the last "
                              "is step ",
                              record.step,
                              "; none of them changed the weights. Lower the learning rate or "
                              "look at the documents that the skipped steps name"),
                 {{"step", absl::StrCat(record.step)}});
  }

  // The last step, and those by every_steps.
  bool IsEvaluationStep() const {
    if (!trainer_->can_evaluate()) return false;
    const int64_t every = config_.evaluation.every_steps;
    return steps_done_ == trainer_->total_steps() || (every > 0 && steps_done_ % every == 0);
  }

  absl::Status EvaluateIfDue() {
    evaluation_due_ = IsEvaluationStep();
    if (!evaluation_due_) return absl::OkStatus();
    const bool last = steps_done_ == trainer_->total_steps();
    const auto record = trainer_->Evaluate(steps_done_, [this, last](double fraction) {
      observer_.OnPhase(Phase::kEvaluate, fraction);
      return observer_.Ask() == Wish::kStop && !last ? Stopped() : absl::OkStatus();
    });
    // Stopped in the middle: no figure, the loop sees the wish next, and who goes on begins here.
    if (absl::IsCancelled(record.status())) return absl::OkStatus();
    PENSTOCK_RETURN_IF_ERROR(record.status());
    evaluation_due_ = false;
    observer_.OnEvaluation(*record);
    if (!std::isfinite(record->loss)) return absl::OkStatus();
    evaluation_loss_ = record->loss;
    if (!best_ || record->loss < best_->loss) best_ = {.step = steps_done_, .loss = record->loss};
    return absl::OkStatus();
  }

  // Of the last finished step, unless there is none or it is saved already. Training goes on while
  // it is written. One that cannot be written is reported by `saves_`, no error: what the run has
  // in memory is as good as before.
  absl::Status BeginCheckpoint() {
    if (steps_done_ == 0 || saves_->Has(steps_done_)) return absl::OkStatus();
    saves_->Finish();
    const Clock::time_point start = Clock::now();
    PENSTOCK_RETURN_IF_ERROR(trainer_->SettleStore());
    saves_->Begin(InfoNow(), std::chrono::duration<double>(Clock::now() - start).count());
    return absl::OkStatus();
  }

  // The same, and waits until it is written.
  absl::Status SaveCheckpoint() {
    saves_->Finish();  // if it fails, this step is still to be saved
    PENSTOCK_RETURN_IF_ERROR(BeginCheckpoint());
    saves_->Finish();
    return absl::OkStatus();
  }

  // The device is lost, and with it whatever was only there. Masters and moments are in host
  // memory: if they are of one step, the next attempt goes on from that one and not from the last
  // checkpoint.
  void SaveWhatTheStoreHolds() {
    const std::optional<int64_t> step = trainer_->StepInStore();
    if (!step) {
      observer_.OnLog(
          "the device failed with part of the state on it, or of an update done: there "
          "is nothing to save beside the checkpoints there are");
      return;
    }
    // Of the last step that was finished, or was to be when the device failed, and of those before.
    for (CheckpointInfo info : {InfoNow(), last_, before_last_}) {
      if (info.step != *step || info.step == 0 || checkpoints_->Has(info.step)) continue;
      info.updates_applied = store_->updates_applied;
      saves_->Begin(info, 0);
      saves_->Finish();
      return;
    }
  }

  CheckpointInfo InfoNow() const {
    return {.step = steps_done_,
            .tokens = tokens_done_,
            .updates_applied = store_->updates_applied,
            .nonfinite_streak = nonfinite_streak_,
            .evaluation_due = evaluation_due_,
            .loss = std::isfinite(loss_) ? std::optional(loss_) : std::nullopt,
            .evaluation_loss = evaluation_loss_,
            .best = best_,
            .left_out_data_steps = data_cursor_.LeftOutBefore(steps_done_),
            .loss_memory = loss_watch_.memory(),
            .code_version = Version(),
            .facts = facts_};
  }

  absl::Status Export() {
    if (config_.output_directory.empty()) return absl::OkStatus();
    observer_.OnPhase(Phase::kExport, 0);
    // There and begun by this job: an attempt that was killed before it could say so has made it.
    std::error_code ignored;
    const bool taken = std::filesystem::exists(config_.output_directory, ignored);
    if (taken && checkpoints_->ExportBegun()) {
      summary_.output_directory = config_.output_directory;
      return absl::OkStatus();
    }
    if (!taken) checkpoints_->NoteExportBegun();
    PENSTOCK_RETURN_IF_ERROR(trainer_->SettleStore());
    if (checkpoints_->Has(steps_done_)) provenance_->ExportOf(checkpoints_->PathOf(steps_done_));
    ThreadPool pool(plan_.threads);
    PENSTOCK_RETURN_IF_ERROR(ExportModel(
        *store_, model_.source, config_.output_directory,
        {.provenance = provenance_.get(), .step = steps_done_}, pool,
        [this](int64_t done, int64_t total) {
          observer_.OnPhase(Phase::kExport, static_cast<double>(done) / static_cast<double>(total));
          // Whoever goes on makes it again of the last checkpoint, if there is that.
          return observer_.Ask() == Wish::kStop && saves_->error().ok() ? Stopped()
                                                                        : absl::OkStatus();
        }));
    summary_.output_directory = config_.output_directory;
    return absl::OkStatus();
  }

  TrainConfig config_;
  const PlanChange& change_plan_;
  TrainObserver& observer_;
  ModelInput model_;
  std::unique_ptr<RunProvenance> provenance_;
  TrainingPlan plan_;
  JobData data_;
  std::string encoding_fingerprint_;
  std::unique_ptr<HostStore> store_;
  std::unique_ptr<Trainer> trainer_;
  TrainSummary summary_;
  int64_t first_step_ = 0;  // that this process ran, from 0
  int64_t steps_done_ = 0;
  int64_t tokens_done_ = 0;
  int64_t nonfinite_streak_ = 0;
  bool evaluation_due_ = false;  // one after steps_done_ was begun and stopped
  LossWatch loss_watch_;
  int64_t left_out_data_steps_ = 0;    // before the step that this process went on from
  std::vector<LeftOutData> left_out_;  // by all rollbacks of the run
  DataCursor data_cursor_{0, 0, {}};
  PlanWatch plan_watch_;
  int64_t host_peak_bytes_ = 0;  // of all this process has been seen with
  double loss_ = 0;
  RunFacts facts_;
  CheckpointInfo last_, before_last_;  // where the run stood before this step, and before the last
  std::optional<JobCheckpoints> checkpoints_;
  std::optional<double> evaluation_loss_;  // after steps_done_; finite
  std::optional<BestEvaluation> best_;
  std::optional<RunSaves> saves_;  // last: it may be writing from the above
};

}  // namespace

absl::StatusOr<TrainSummary> Train(const TrainConfig& config, TrainObserver& observer) {
  return TrainWithPlan(config, {}, observer);
}

absl::StatusOr<TrainSummary> TrainWithPlan(const TrainConfig& config, const PlanChange& change,
                                           TrainObserver& observer) {
  TrainRun run(config, change, observer);
  absl::StatusOr<TrainSummary> summary = run.Run();
  if (absl::IsCancelled(summary.status()) && run.stopped()) {
    return TrainSummary{.end = TrainEnd::kStopped};
  }
  return summary;
}

absl::Status RunExport(const ExportConfig& config, TrainObserver& observer) {
  observer.OnPhase(Phase::kExport, 0);
  std::error_code ignored;
  const bool taken = std::filesystem::exists(config.output_directory, ignored);
  const bool begun =
      !config.note_path.empty() && std::filesystem::exists(config.note_path, ignored);
  if (taken && begun) return absl::OkStatus();
  // If the note is lost with the machine, the next attempt finds the place taken and says so.
  if (!taken && !config.note_path.empty()) std::ofstream(config.note_path).flush();
  ThreadPool pool(config.threads > 0 ? config.threads : UsableCores());
  ExportOptions options;
  if (config.export_element) options.type = ToWeightType(*config.export_element);
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::unique_ptr<ExportProvenance> provenance,
      ExportProvenance::Create(config.provenance, config.checkpoint_directory));
  options.provenance = provenance.get();
  return ExportCheckpoint(config.checkpoint_directory, config.output_directory, options, pool,
                          ByteProgress(observer, Phase::kExport));
}

}  // namespace penstock
