#include "engine/exec/host_ops.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/plan/verify.h"

namespace penstock {

absl::Status UpdateBlock(const cpu::Context& context, HostStore& store, BlockId block_id,
                         const StepUpdates& updates) {
  BlockStore& block = store.block(block_id);
  if (updates.changes_weights()) store.updating = true;
  // The plane that the store does not have is empty: its data() may be null or not.
  return UpdateParameters(
      context, store.layout().blocks[Index(block_id)],
      {.hi = block.hi.data(),
       .lo = block.lo.data(),
       .m = block.m.data(),
       .v = block.v.data(),
       .gradient = block.gradient.empty() ? nullptr : block.gradient.data(),
       .gradient_bf16 = block.gradient_bf16.empty() ? nullptr : block.gradient_bf16.data()},
      store.updates_applied, updates);
}

absl::Status CheckLabelCount(int64_t counted, int64_t expected) {
  if (counted == expected) return absl::OkStatus();
  return Error(absl::StatusCode::kInternal, reason::kInternal,
               absl::StrCat("the loss counted ", counted, " labelled tokens, the loader ", expected,
                            "; the step was stopped"));
}

absl::Status CheckProgram(const StepProgram& program, int64_t arena_bytes, int64_t host_arena_bytes,
                          const HostStore& store) {
  PENSTOCK_RETURN_IF_ERROR(Verify(program));
  if (program.arena_bytes > arena_bytes || program.host_arena_bytes > host_arena_bytes) {
    return Error(absl::StatusCode::kResourceExhausted, reason::kDeviceMemoryInsufficient,
                 absl::StrCat("the program's arenas have ", program.arena_bytes, " and ",
                              program.host_arena_bytes, " bytes, the executor's ", arena_bytes,
                              " and ", host_arena_bytes));
  }
  const BlockStore& block = store.block(BlockId{0});
  const bool plane = program.gradient_type == GradientType::kBfloat16 ? !block.gradient_bf16.empty()
                                                                      : !block.gradient.empty();
  const bool sums = std::any_of(program.ops.begin(), program.ops.end(), [](const Op& op) {
    return std::holds_alternative<StoreSums>(op.body);
  });
  if (sums && block.sums.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kInternal,
                 "the host store has no place for the sums that wait between rounds");
  }
  if (program.updates == Updates::kNone || plane) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, reason::kInternal,
               "the host store has no gradient plane of the program's gradient type");
}

}  // namespace penstock
