#include "engine/train/run_facts.h"

#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/base/version.h"
#include "engine/data/hash.h"
#include "engine/kernels/cpu_isa.h"

namespace penstock {
namespace {

using Facts = std::map<std::string, std::string>;

constexpr char kAbsent[] = "nothing";

// Every bit of the number, as few digits as carry it.
std::string NumberText(double value) { return absl::StrFormat("%.17g", value); }

std::string DataText(const Dataset& data) {
  ContentHash hash;
  for (int64_t document = 0; document < data.documents(); ++document) {
    const std::span<const int32_t> ids = data.Ids(document);
    hash.UpdateField({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()});
    if (data.AllTrained()) continue;
    std::string labels(ids.size(), '\0');
    for (size_t i = 0; i < ids.size(); ++i) {
      labels[i] = data.HasLabel(document, static_cast<int64_t>(i)) ? '\1' : '\0';
    }
    hash.UpdateField(labels);
  }
  return absl::StrCat(data.documents(), " documents, ", data.tokens(), " tokens, hash ",
                      hash.HexDigest());
}

std::string ConfigText(const std::string& config_json) {
  ContentHash hash;
  hash.UpdateField(config_json);
  return absl::StrCat("hash ", hash.HexDigest());
}

const char* ShapeText(ScheduleShape shape) {
  switch (shape) {
    case ScheduleShape::kConstant:
      return "constant";
    case ScheduleShape::kLinear:
      return "linear";
    case ScheduleShape::kCosine:
      return "cosine";
    case ScheduleShape::kWarmupStableDecay:
      return "warmup_stable_decay";
    case ScheduleShape::kInverseSqrt:
      return "inverse_sqrt";
  }
  return "?";
}

const char* IsaText(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kPortable:
      return "portable";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
  }
  return "?";
}

const char* PackingText(Packing packing) {
  switch (packing) {
    case Packing::kPacked:
      return "packed";
    case Packing::kPadded:
      return "padded";
    case Packing::kWrapped:
      return "wrapped";
  }
  return "?";
}

// What of several datasets decides the order, beside their documents.
std::string MixtureText(const Dataset& data) {
  std::string text;
  for (const Dataset::Part& part : data.parts()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", part.documents.size(), " documents of weight ",
                    NumberText(part.weight));
  }
  return text;
}

Facts Identity(const TrainConfig& config, const ModelInput& model, const Dataset& train) {
  const OptimizerConfig& optimizer = config.optimizer;
  const ScheduleConfig& schedule = config.schedule;
  Facts facts = {{"config.json", ConfigText(model.source.config_json)},
                 {kTrainingDataFact, DataText(train)},
                 {"data.packing", PackingText(config.data.packing)},
                 {"seed", absl::StrCat(config.seed)},
                 {"batch.sequence_length", absl::StrCat(config.batch.sequence_length)},
                 {"batch.tokens_per_step", absl::StrCat(config.batch.tokens_per_step)},
                 {"optimizer.learning_rate", NumberText(optimizer.learning_rate)},
                 {"optimizer.beta1", NumberText(optimizer.beta1)},
                 {"optimizer.beta2", NumberText(optimizer.beta2)},
                 {"optimizer.epsilon", NumberText(optimizer.epsilon)},
                 {"optimizer.weight_decay", NumberText(optimizer.weight_decay)},
                 {"optimizer.max_grad_norm", NumberText(optimizer.max_grad_norm)},
                 {"schedule.kind", ShapeText(schedule.shape)},
                 {"schedule.warmup_steps", absl::StrCat(schedule.warmup_steps)},
                 {"schedule.final_fraction", NumberText(schedule.final_fraction)},
                 {"schedule.max_steps", absl::StrCat(schedule.max_steps)},
                 {"schedule.epochs", absl::StrCat(schedule.epochs)}};
  if (schedule.decay_steps != 0) {
    facts["schedule.decay_steps"] = absl::StrCat(schedule.decay_steps);
  }
  const std::span<const Dataset::Part> parts = train.parts();
  if (parts.size() > 1 || parts[0].weight != 1) facts["datasets"] = MixtureText(train);
  const LossSpikeConfig& spikes = config.loss_spikes;
  if (spikes.roll_back) {
    facts["loss_spikes"] = absl::StrCat(
        "roll back above ", NumberText(spikes.threshold), " deviations, ", spikes.skip_steps,
        " more steps left out, at most ", spikes.max_rollbacks, " times");
  }
  return facts;
}

// Of the planner's facts, those that a run which goes on keeps.
constexpr char kHeadChunk[] = "plan.head_chunk_rows", kMlpChunk[] = "plan.mlp_chunk_rows",
               kGradients[] = "plan.gradient_bytes", kRound[] = "plan.micro_batches_per_round",
               kFirstRound[] = "plan.micro_batches_in_first_round";

Facts Rounding(const TrainConfig& config, const ModelSpec& spec, const TrainingPlan& plan) {
  const bool cuda = config.device.backend == ComputeBackend::kCuda;
  const RoundingChoice rounding = RoundingOf(plan.policy);
  Facts facts = {{kHeadChunk, absl::StrCat(rounding.head_chunk_rows)},
                 {kMlpChunk, absl::StrCat(rounding.mlp_chunk_rows)},
                 {kGradients, absl::StrCat(GradientBytesPerElement(rounding.gradient_type))},
                 {"device", cuda ? config.device.card : "cpu"},
                 {"batch.micro_batch_tokens", absl::StrCat(config.batch.micro_batch_tokens)},
                 {"plan", plan.memory.rounding},
                 {"cpu instruction set", IsaText(BestCpuIsa())},
                 {"code version", Version()}};
  if (!spec.tied()) return facts;
  facts[kRound] = absl::StrCat(rounding.micro_batches_per_round);
  facts[kFirstRound] = absl::StrCat(rounding.micro_batches_in_first_round);
  return facts;
}

// Calls difference(name, saved, current) for each name with two values.
template <typename Difference>
void ForEachDifference(const Facts& saved, const Facts& current, Difference difference) {
  const auto value_in = [](const Facts& facts, const std::string& name) {
    const auto found = facts.find(name);
    return found == facts.end() ? std::string(kAbsent) : found->second;
  };
  Facts names = saved;
  names.insert(current.begin(), current.end());
  for (const auto& [name, unused] : names) {
    const std::string before = value_in(saved, name), now = value_in(current, name);
    if (before != now) difference(name, before, now);
  }
}

std::vector<std::string> Changes(const Facts& saved, const Facts& current) {
  std::vector<std::string> changes;
  ForEachDifference(
      saved, current,
      [&](const std::string& name, const std::string& before, const std::string& now) {
        changes.push_back(absl::StrCat(name, ": ", before, ", now ", now));
      });
  return changes;
}

}  // namespace

RunFacts MakeRunFacts(const TrainConfig& config, const ModelInput& model, const TrainingPlan& plan,
                      const Dataset& train) {
  return {.identity = Identity(config, model, train),
          .rounding = Rounding(config, model.spec, plan)};
}

std::optional<RoundingChoice> SavedRounding(const RunFacts& saved) {
  bool whole = saved.rounding.contains(kHeadChunk);
  const auto number = [&](const char* name, int64_t low, int64_t high) {
    const auto found = saved.rounding.find(name);
    if (found == saved.rounding.end()) return low;  // an untied model has no rounds here
    int64_t value = low;
    whole &= absl::SimpleAtoi(found->second, &value) && value >= low && value <= high;
    return value;
  };
  constexpr int64_t kMostRows = int64_t{1} << 30;
  RoundingChoice rounding;
  rounding.head_chunk_rows = number(kHeadChunk, 1, kMostRows);
  rounding.mlp_chunk_rows = number(kMlpChunk, 0, kMostRows);
  rounding.gradient_type =
      number(kGradients, 2, 4) == 2 ? GradientType::kBfloat16 : GradientType::kFloat32;
  rounding.micro_batches_per_round = static_cast<int32_t>(number(kRound, 0, kMostRows));
  rounding.micro_batches_in_first_round = static_cast<int32_t>(number(kFirstRound, 0, kMostRows));
  return whole ? std::optional(rounding) : std::nullopt;
}

absl::Status CheckSameRun(const RunFacts& saved, const RunFacts& current, const std::string& path) {
  absl::Status status;
  ForEachDifference(
      saved.identity, current.identity,
      [&](const std::string& name, const std::string& before, const std::string& now) {
        if (!status.ok()) return;
        status = Error(
            absl::StatusCode::kFailedPrecondition, reason::kCheckpointMismatch,
            absl::StrCat(path, " is of another run: its ", name, " is ", before, ", this job's is ",
                         now, "; bring back what was changed, or submit a new job"),
            {{"checkpoint", path}, {"found", before}, {"wanted", now}});
      });
  return status;
}

std::vector<std::string> IdentityChanges(const RunFacts& saved, const RunFacts& current) {
  return Changes(saved.identity, current.identity);
}

std::vector<std::string> RoundingChanges(const RunFacts& saved, const RunFacts& current) {
  return Changes(saved.rounding, current.rounding);
}

}  // namespace penstock
