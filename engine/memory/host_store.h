// HostStore holds a model between uses: for every block the two weight planes and AdamW's two
// moments, and, when the plan asks for it, a gradient plane.
//
//   bytes per element: hi 2 + lo 2 + m 4 + v 4 (+ gradient 4, or 2 in bf16 without host sums)
//
// Moments may be kept in fewer bits (plan/moment_type.h): then m and v take 2 bytes each, or 1 and
// a scale in fp32 for every kMomentBlock elements of a parameter.
//
// Every block starts on a huge page.
//
// The weights that a job imported are the only master copy: nothing in the engine keeps a
// second one (an optimizer with its own stale copy throws imports away, BC-11).
//
// Thread-compatible by region: who may touch which plane of which block and when is the step
// program's business (plan/step_program.h); this class adds no locks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/bf16.h"
#include "engine/base/ids.h"
#include "engine/memory/host_memory.h"
#include "engine/model/layout.h"
#include "engine/plan/moment_type.h"
#include "engine/plan/policy.h"

namespace penstock {

enum class GradientPlane : uint8_t {
  kNone,
  kFloat32,
  kBfloat16,
  kBfloat16OverSums,  // bf16 gradients lie where the f32 sums lay before they were complete
};
// The plane that takes the gradients of a policy's programs and, if they have rounds whose sums
// wait on the host, those sums.
GradientPlane PlaneOf(const Policy& policy, int64_t num_layers, int64_t micro_batches);
// Inference-like uses (evaluating an export) need no optimizer state.
enum class OptimizerState : uint8_t { kNone, kFloat32, kBfloat16, kInt8Blocks };
constexpr OptimizerState StateOf(MomentType type) {
  switch (type) {
    case MomentType::kFloat32:
      return OptimizerState::kFloat32;
    case MomentType::kBfloat16:
      return OptimizerState::kBfloat16;
    case MomentType::kInt8Blocks:
      return OptimizerState::kInt8Blocks;
  }
  return OptimizerState::kNone;
}

// A moment that is not fp32.
struct SmallMoment {
  std::span<std::byte> values;  // MomentElementBytes() for each element of the block
  std::span<float> scales;      // of kInt8Blocks, parameter by parameter: FirstScale()
};
// Where in `scales` those of the parameter begin.
int64_t FirstScale(const BlockLayout& block, const Parameter& parameter);

// All arrays have the block's size in elements; m, v and the gradients are empty when absent.
struct BlockStore {
  std::span<uint16_t> hi;
  std::span<int16_t> lo;
  std::span<float> m;
  std::span<float> v;
  SmallMoment small_m;  // in place of m and v
  SmallMoment small_v;
  std::span<float> gradient;
  std::span<bf16> gradient_bf16;
  std::span<float> sums;  // over `gradient` or `gradient_bf16`

  // Of the gradient plane there is; null if there is none.
  std::byte* gradient_bytes() const {
    return gradient.empty() ? reinterpret_cast<std::byte*>(gradient_bf16.data())
                            : reinterpret_cast<std::byte*>(gradient.data());
  }
};

class HostStore {
 public:
  // Maps everything at once, zero-filled. ResourceExhausted with bytes wanted otherwise.
  static absl::StatusOr<std::unique_ptr<HostStore>> Create(const ModelLayout& layout,
                                                           OptimizerState state,
                                                           GradientPlane gradient);
  // The bytes Create would take, for the memory plan.
  static int64_t BytesNeeded(const ModelLayout& layout, OptimizerState state,
                             GradientPlane gradient);

  const ModelLayout& layout() const { return layout_; }
  BlockStore& block(BlockId id) { return blocks_[Index(id)]; }
  const BlockStore& block(BlockId id) const { return blocks_[Index(id)]; }
  bool has_moments() const { return state_ != OptimizerState::kNone; }
  MomentType moment_type() const;  // kFloat32 if it has none
  int64_t bytes() const { return memory_.bytes(); }
  // The planes of each block with what fills its last huge page: apart, together all of the
  // store's memory, for a device that wants it locked in pieces.
  const std::vector<std::span<std::byte>>& block_memory() const { return block_memory_; }

  // Makes all pages resident, plane by plane: the threads that touch a part of a plane are those
  // that an op over the plane will give it to. Not necessary, only faster than one by one.
  void TouchPages(ThreadPool& pool);

  // Number of optimizer updates applied so far: AdamW's t. Advanced by the trainer once per
  // applied (not skipped) step.
  int64_t updates_applied = 0;
  // While an update goes through the blocks some are of one step and some of the next, and if the
  // update fails that stays so. Set by whoever changes weights or moments, from any thread; reset
  // when all are changed.
  std::atomic<bool> updating = false;

 private:
  HostStore(const ModelLayout& layout, HostMemory memory, OptimizerState state,
            GradientPlane gradient);
  ModelLayout layout_;
  HostMemory memory_;
  OptimizerState state_;
  std::vector<BlockStore> blocks_;
  std::vector<std::span<std::byte>> block_memory_;
};

}  // namespace penstock
