#include "engine/train/policy_choice.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"

namespace penstock {
namespace {

// Logits of one chunk: enough rows to keep a GEMM busy, few enough for a 250k vocabulary. Chunks
// are part of a job's numerics, so functions of model and batch and not of the memory there is.
struct ChunkLimits {
  int64_t logits_bytes, min_rows, max_rows;
};
constexpr ChunkLimits kCpuChunk = {int64_t{64} << 20, 16, 1024};
constexpr ChunkLimits kCudaChunk = {int64_t{256} << 20, 256, 4096};
// Micro-batches of up to as many tokens have their MLP in one piece.
constexpr int64_t kMlpChunkRows = 16384;

struct Candidate {
  Policy policy;
  std::string words;
};

const char* SavedWords(SaveLevel level) {
  switch (level) {
    case SaveLevel::kAll:
      return "all saved";
    case SaveLevel::kAttention:
      return "attention saved";
    case SaveLevel::kInput:
      return "inputs saved";
  }
  return "?";
}

int64_t HeadChunkRows(const ChunkLimits& limits, const PolicyChoiceArgs& args) {
  return std::clamp(limits.logits_bytes / (args.spec.vocab_size * args.shape.element_bytes),
                    limits.min_rows, limits.max_rows);
}

std::vector<Candidate> CpuCandidates(const PolicyChoiceArgs& args) {
  return {
      {{.saving = {.level = args.save_level}, .head_chunk_rows = HeadChunkRows(kCpuChunk, args)},
       absl::StrCat("streamed, ", SavedWords(args.save_level))}};
}

std::vector<Candidate> CudaCandidates(const PolicyChoiceArgs& args) {
  const Policy base{
      .saving = {.level = args.save_level},
      .head_chunk_rows = HeadChunkRows(kCudaChunk, args),
      .mlp_chunk_rows = args.shape.tokens_per_micro_batch > kMlpChunkRows ? kMlpChunkRows : 0,
      .gradient_type = GradientType::kBfloat16};
  const auto resident = [&](BlockPlacement placement, UpdateTime update_time) {
    Policy policy = base;
    policy.micro_batches_per_round = 1;
    policy.update_time = update_time;
    policy.placements.assign(args.layout.blocks.size(), placement);
    return policy;
  };
  const auto streamed = [&](Saving saving) {
    Policy policy = base;
    policy.saving = saving;
    policy.update_time = UpdateTime::kNextStep;
    return policy;
  };
  const char* saved = SavedWords(args.save_level);
  std::vector<Candidate> candidates = {
      {resident({.weights = true, .gradients = true, .state = true}, UpdateTime::kEndOfStep),
       absl::StrCat("resident, ", saved)},
      {resident({.weights = true, .gradients = true}, UpdateTime::kNextStep),
       absl::StrCat("resident but for the optimizer state, ", saved)}};
  for (SaveLevel level : {SaveLevel::kAll, SaveLevel::kAttention, SaveLevel::kInput}) {
    if (level < args.save_level) continue;
    candidates.push_back({streamed({level}), absl::StrCat("streamed, ", SavedWords(level))});
  }
  candidates.push_back(
      {streamed({SaveLevel::kInput, SavePlace::kHost}), "streamed, inputs saved in host memory"});
  return candidates;
}

absl::StatusOr<PolicyChoice> Build(const PolicyChoiceArgs& args, Candidate candidate) {
  PolicyChoice choice{.policy = std::move(candidate.policy), .words = std::move(candidate.words)};
  PENSTOCK_ASSIGN_OR_RETURN(choice.train,
                            BuildTrainProgram(args.spec, args.layout, choice.policy, args.shape));
  ProgramShape shape = args.shape;
  shape.micro_batches = 1;
  PENSTOCK_ASSIGN_OR_RETURN(const StepProgram evaluation,
                            BuildEvaluationProgram(args.spec, args.layout, choice.policy, shape));
  choice.arena_bytes = std::max(choice.train.arena_bytes, evaluation.arena_bytes);
  choice.host_arena_bytes = std::max(choice.train.host_arena_bytes, evaluation.host_arena_bytes);
  return choice;
}

absl::Status NoneFits(const PolicyChoice& least, int64_t budget_bytes) {
  return Error(
      absl::StatusCode::kResourceExhausted, reason::kDeviceMemoryInsufficient,
      absl::StrCat("a step needs at least ", FormatBytes(least.arena_bytes), " of device memory (",
                   least.words, "), ", FormatBytes(budget_bytes), " usable (what the GPU has less ",
                   FormatBytes(kDeviceReserveBytes), " for CUDA, or limits.device_memory_bytes)"),
      {{"needed_bytes", absl::StrCat(least.arena_bytes)},
       {"usable_bytes", absl::StrCat(budget_bytes)},
       {"limit_source", "device memory"}});
}

}  // namespace

absl::StatusOr<PolicyChoice> ChoosePolicy(const PolicyChoiceArgs& args) {
  PolicyChoice choice;
  for (Candidate& candidate :
       args.backend == ComputeBackend::kCuda ? CudaCandidates(args) : CpuCandidates(args)) {
    PENSTOCK_ASSIGN_OR_RETURN(choice, Build(args, std::move(candidate)));
    if (choice.arena_bytes <= args.budget_bytes) return choice;
  }
  return NoneFits(choice, args.budget_bytes);
}

}  // namespace penstock
