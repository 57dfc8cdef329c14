#include "bench/step_search.h"

#include <algorithm>

#include "engine/base/status.h"
#include "engine/memory/host_store.h"

namespace penstock {
namespace {

// Of the host, beside the store and what the program saves there.
constexpr int64_t kProcessBytes = int64_t{2} << 30;

}  // namespace

absl::StatusOr<PolicyCandidate> SearchPolicy(const StepFlags& flags, const SearchedStep& step) {
  const auto store_bytes = [&](GradientPlane plane) {
    return HostStore::BytesNeeded(step.layout, StateOf(step.asked.moment_type), plane);
  };
  Policy base{.decoder_slots = step.asked.decoder_slots,
              .head_chunk_rows = step.asked.head_chunk_rows,
              .mlp_chunk_rows = step.asked.mlp_chunk_rows,
              .gradient_type = step.asked.gradient_type,
              .moment_type = step.asked.moment_type};
  if (step.asked.update_time == UpdateTime::kWithBackward) {
    base.update_time = step.asked.update_time;
  }
  const int64_t store = store_bytes(PlaneOf(base, step.spec.num_layers, step.shape.micro_batches));
  const int64_t budget = step.shape.arena_budget_bytes;
  PENSTOCK_ASSIGN_OR_RETURN(
      SearchResult found,
      ChoosePolicy(
          {.spec = step.spec,
           .layout = step.layout,
           .shape = step.shape,
           .base = base,
           .host_sums_bytes = store_bytes(GradientPlane::kBfloat16OverSums) -
                              store_bytes(GradientPlane::kBfloat16),
           .mean_document_tokens = static_cast<double>(flags.sequence_length),
           .machine = step.machine,
           .device_bytes = budget > 0 ? budget : step.room.device_bytes,
           .host_bytes = std::max<int64_t>(0, step.room.host_bytes - kProcessBytes - store)}));
  return std::move(found.best);
}

}  // namespace penstock
