#include "engine/exec/host_ops.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/kernels/adamw_small_moments.h"
#include "engine/plan/verify.h"

namespace penstock {

namespace {

// As UpdateParameters, with moments that are not fp32.
absl::Status UpdateSmallMoments(const cpu::Context& context, HostStore& store, BlockId id,
                                const UpdateArrays& arrays, const StepUpdates& updates) {
  const BlockStore& block = store.block(id);
  const MomentType type = store.moment_type();
  int64_t scale = 0;
  for (const Parameter& parameter : store.layout().blocks[Index(id)].parameters) {
    const int64_t at = parameter.offset * MomentElementBytes(type);
    const bool scales = type == MomentType::kInt8Blocks;
    PENSTOCK_RETURN_IF_ERROR(AdamWSmallMoments(
        context, {.update = ParameterUpdate(parameter, arrays, store.updates_applied, updates),
                  .type = type,
                  .m = block.small_m.values.data() + at,
                  .v = block.small_v.values.data() + at,
                  .m_scales = scales ? block.small_m.scales.data() + scale : nullptr,
                  .v_scales = scales ? block.small_v.scales.data() + scale : nullptr,
                  .stream = {.seed = updates.optimizer().rounding_seed,
                             .update = store.updates_applied + 1,
                             .block = Index(id),
                             .element = parameter.offset}}));
    scale += MomentBlocks(parameter.size);
  }
  return absl::OkStatus();
}

absl::Status Update(const cpu::Context& context, HostStore& store, BlockId id, UpdatePart part,
                    const float* gradient, const bf16* gradient_bf16, const StepUpdates& updates) {
  if (!updates.changes_weights()) return absl::OkStatus();
  updates.AskToChange(id);
  store.updating = true;
  BlockStore& block = store.block(id);
  const bool small = store.moment_type() != MomentType::kFloat32;
  const UpdateArrays arrays = {.hi = block.hi.data(),
                               .lo = block.lo.data(),
                               .m = small ? nullptr : block.m.data(),
                               .v = small ? nullptr : block.v.data(),
                               .gradient = gradient,
                               .gradient_bf16 = gradient_bf16,
                               .part = part};
  if (small) return UpdateSmallMoments(context, store, id, arrays, updates);
  return UpdateParameters(context, store.layout().blocks[Index(id)], arrays, store.updates_applied,
                          updates);
}

}  // namespace

AdamWArgs ParameterUpdate(const Parameter& parameter, const UpdateArrays& arrays,
                          int64_t updates_applied, const StepUpdates& updates) {
  const OptimizerStep& optimizer = updates.optimizer();
  const double t = static_cast<double>(updates_applied + 1);
  const int64_t at = parameter.offset;
  return {.hi = arrays.hi + at,
          .lo = arrays.lo + at,
          .m = arrays.m == nullptr ? nullptr : arrays.m + at,
          .v = arrays.v == nullptr ? nullptr : arrays.v + at,
          .gradient = arrays.gradient == nullptr ? nullptr : arrays.gradient + at,
          .gradient_bf16 = arrays.gradient_bf16 == nullptr ? nullptr : arrays.gradient_bf16 + at,
          .count = parameter.size,
          .learning_rate = optimizer.learning_rate,
          .beta1 = optimizer.beta1,
          .beta2 = optimizer.beta2,
          .epsilon = optimizer.epsilon,
          .weight_decay = parameter.decay == Decay::kApply ? optimizer.weight_decay : 0.0,
          .gradient_scale = static_cast<float>(updates.decision().clip_scale),
          .bias_correction1 = 1 - std::pow(optimizer.beta1, t),
          .bias_correction2 = 1 - std::pow(optimizer.beta2, t),
          .part = arrays.part};
}

absl::Status UpdateBlock(const cpu::Context& context, HostStore& store, BlockId block_id,
                         UpdatePart part, const StepUpdates& updates) {
  const BlockStore& block = store.block(block_id);
  // The plane that the store does not have is empty: its data() may be null or not.
  return Update(context, store, block_id, part,
                block.gradient.empty() ? nullptr : block.gradient.data(),
                block.gradient_bf16.empty() ? nullptr : block.gradient_bf16.data(), updates);
}

absl::Status UpdateBlockFrom(const cpu::Context& context, HostStore& store, BlockId block,
                             const std::byte* gradients, GradientType type, double sum_of_squares,
                             const StepUpdates& updates) {
  if (updates.changes_weights() && !std::isfinite(sum_of_squares)) {
    return Error(absl::StatusCode::kFailedPrecondition, reason::kNonFinite,
                 absl::StrCat("the gradient of block ", Index(block),
                              " is not finite, and blocks above it have been updated already "
                              "(optimizer.update_with_backward): go on from a checkpoint, with a "
                              "lower learning rate or without that setting, which lets such "
                              "steps be skipped"));
  }
  const bool rounded = type == GradientType::kBfloat16;
  return Update(context, store, block, UpdatePart::kAll,
                rounded ? nullptr : reinterpret_cast<const float*>(gradients),
                rounded ? reinterpret_cast<const bf16*>(gradients) : nullptr, updates);
}

absl::StatusOr<StepDecision> DecideBeforeNorm(double loss_sum, int64_t labelled_tokens,
                                              const OptimizerStep& optimizer) {
  if (optimizer.max_grad_norm == 0) {
    return DecideStep(loss_sum, labelled_tokens, /*sum_of_squares=*/0, /*max_grad_norm=*/0);
  }
  return Error(absl::StatusCode::kInternal, reason::kInternal,
               absl::StrCat("the program updates before the norm is known, and the step clips at ",
                            optimizer.max_grad_norm));
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
  const bool state_on_device =
      std::any_of(program.ops.begin(), program.ops.end(), [](const Op& op) {
        return std::holds_alternative<UpdateDevice>(op.body) ||
               std::holds_alternative<FetchMoments>(op.body) ||
               std::holds_alternative<StoreMoments>(op.body);
      });
  if (state_on_device && store.moment_type() != MomentType::kFloat32) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kInternal,
                 absl::StrCat("the program keeps optimizer state on the device, where moments are "
                              "float32; the host store's are ",
                              MomentTypeName(store.moment_type()), ", which the host updates"));
  }
  const bool sums = std::any_of(program.ops.begin(), program.ops.end(), [](const Op& op) {
    return std::holds_alternative<StoreSums>(op.body);
  });
  if (sums && block.sums.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kInternal,
                 "the host store has no place for the sums that wait between rounds");
  }
  const bool needs_plane = std::any_of(program.ops.begin(), program.ops.end(), [](const Op& op) {
    const auto* update = std::get_if<UpdateHost>(&op.body);
    return update != nullptr && update->gradients == kNoBuffer;
  });
  if (!needs_plane || plane) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, reason::kInternal,
               "the host store has no gradient plane of the program's gradient type");
}

}  // namespace penstock
