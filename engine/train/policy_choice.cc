#include "engine/train/policy_choice.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/memory/host_store.h"
#include "engine/train/usable_cores.h"

namespace penstock {
namespace {

// Logits of one chunk: few enough rows for a 250k vocabulary, and on a GPU enough of them that its
// work outweighs what each chunk reads and writes of the head's fp32 gradient sums: those take as
// long as the products of 280 rows. Whole tiles, of which the last rows of a product make one.
// Chunks are part of a job's numerics, so functions of model and batch and not of the memory there
// is.
struct ChunkLimits {
  int64_t logits_bytes, min_rows, max_rows, multiple;
};
constexpr ChunkLimits kCpuChunk = {int64_t{64} << 20, 16, 1024, 1};
constexpr ChunkLimits kCudaChunk = {int64_t{1280} << 20, 256, 4096, 128};
// Micro-batches of up to as many tokens have their MLP in one piece.
constexpr int64_t kMlpChunkRows = 8192;

bool OnCuda(const TrainConfig& config) { return config.device.backend == ComputeBackend::kCuda; }

Policy FixedChoices(const PolicyChoiceArgs& args) {
  const bool cuda = OnCuda(args.config);
  const ChunkLimits& limits = cuda ? kCudaChunk : kCpuChunk;
  const int64_t row_bytes = args.spec.vocab_size * args.shape.element_bytes;
  const int64_t rows = limits.logits_bytes / row_bytes / limits.multiple * limits.multiple;
  const bool chunks = cuda && args.shape.tokens_per_micro_batch > kMlpChunkRows;
  return {.head_chunk_rows = std::clamp(rows, limits.min_rows, limits.max_rows),
          .mlp_chunk_rows = chunks ? kMlpChunkRows : 0,
          .gradient_type = cuda ? GradientType::kBfloat16 : GradientType::kFloat32,
          .moment_type = args.config.moment_type,
          .update_time = args.config.optimizer.update_with_backward ? UpdateTime::kWithBackward
                                                                    : UpdateTime::kEndOfStep};
}

}  // namespace

NamedProfile ProfileOf(const TrainConfig& config, int threads) {
  NamedProfile profile;
  // A CPU is measured with all its threads.
  const bool applies = OnCuda(config) || config.compute_threads == 0;
  if (config.device.profile.has_value() && applies) {
    profile = *config.device.profile;
  } else if (!OnCuda(config)) {
    profile = CpuProfile(std::min(threads, UsableCores()));
  } else {
    const absl::StatusOr<NamedProfile> planned = FindMachineProfile(config.device.planned_machine);
    profile = planned.ok() ? *planned : ProfileOfCard(config.device.card);
  }
  MachineProfile& rates = profile.rates;
  if (config.moments_on_storage) {
    // They are read and written once a step, by one stream each way, one after the other.
    constexpr int64_t kMany = 1 << 20;
    const double bytes = static_cast<double>(MomentBytes(config.moment_type, kMany)) / kMany;
    const double storage =
        1 / (bytes / rates.storage_read_bytes + bytes / rates.storage_write_bytes);
    rates.adamw_parameters = std::min(rates.adamw_parameters, storage);
  }
  if (OnCuda(config) && config.device.page_lock == PageLock::kOff) {
    rates.copy_in_bytes *= kPageableCopyInShare;
    rates.copy_out_bytes *= kPageableCopyOutShare;
  }
  return profile;
}

absl::StatusOr<SearchResult> ChoosePolicyOf(const PolicyChoiceArgs& args) {
  const bool cuda = OnCuda(args.config);
  Policy base = FixedChoices(args);
  std::optional<RoundingChoice> kept = args.config.kept_rounding;
  // Of another backend nothing can be kept.
  if (kept.has_value() && kept->gradient_type != base.gradient_type) kept.reset();
  if (kept.has_value()) {
    base.head_chunk_rows = kept->head_chunk_rows;
    base.mlp_chunk_rows = kept->mlp_chunk_rows;
  }
  // Rounds change rounding where a tied head adds to the embedding's gradient.
  if (!args.spec.tied()) kept.reset();
  const auto store_bytes = [&](GradientPlane plane) {
    return HostStore::BytesNeeded(args.layout, StateOf(args.config.moment_type), plane);
  };
  return ChoosePolicy(
      {.spec = args.spec,
       .layout = args.layout,
       .shape = args.shape,
       .base = base,
       .host_sums_bytes = base.gradient_type == GradientType::kFloat32
                              ? 0
                              : store_bytes(GradientPlane::kBfloat16OverSums) -
                                    store_bytes(GradientPlane::kBfloat16),
       .kept_rounds = kept,
       .save_at_most = args.config.batch.save_level,
       .space = cuda ? SearchSpace::kEverything : SearchSpace::kSavingOnly,
       // How long documents are is not known before the data is read: rows are full of one.
       .mean_document_tokens = static_cast<double>(args.config.batch.sequence_length),
       .machine = ProfileOf(args.config, args.threads).rates,
       .device_bytes = args.device_bytes,
       .host_bytes = args.host_bytes,
       .effort = &args.effort});
}

std::string RoundingWords(const TrainConfig& config, const ModelSpec& spec, const Policy& policy) {
  std::string words = absl::StrCat(
      "micro-batches of ", config.batch.micro_batch_tokens, " tokens, logits by ",
      policy.head_chunk_rows, " rows, MLP ",
      policy.mlp_chunk_rows > 0 ? absl::StrCat("by ", policy.mlp_chunk_rows, " rows")
                                : std::string("in one piece"),
      ", gradients ", policy.gradient_type == GradientType::kBfloat16 ? "bfloat16" : "float32");
  if (spec.tied()) {
    absl::StrAppend(&words, ", tied head: rounds of ",
                    policy.micro_batches_per_round > 0
                        ? absl::StrCat(policy.micro_batches_per_round,
                                       policy.micro_batches_in_first_round > 0
                                           ? absl::StrCat(", the first of ",
                                                          policy.micro_batches_in_first_round)
                                           : "")
                        : std::string("all micro-batches"));
  }
  return words;
}

}  // namespace penstock
