// The choices a planner makes for a step. Options choose a program, not branches in a run loop.
// None of them changes a bit of the result but the chunk sizes, the gradient type and, where a
// tied head adds to the embedding's gradient, the rounds: they change the order of that sum.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/moment_type.h"

namespace penstock {

// What a layer's backward pass finds saved; it computes the rest again. All levels give the
// same bits: a kernel run again on the same input gives the same bits.
enum class SaveLevel : uint8_t {
  kAll,        // no matmul is run again
  kAttention,  // the attention side is saved, the MLP side recomputed
  kInput,      // only the layer's input is saved
};

// Where saved tensors wait for backward. Those in (locked) host memory leave through copy-out
// and come back through copy-in.
enum class SavePlace : uint8_t { kDevice, kHost };

struct Saving {
  SaveLevel level = SaveLevel::kAll;
  SavePlace place = SavePlace::kDevice;
};

// What the gradient sums, which are fp32, become when they are complete. Norm and optimizer see
// the rounded values.
enum class GradientType : uint8_t { kFloat32, kBfloat16 };

constexpr int64_t GradientBytesPerElement(GradientType type) {
  return type == GradientType::kBfloat16 ? 2 : 4;
}

// What of a block stays on the device from step to step. The rest streams.
struct BlockPlacement {
  bool weights = false;    // a copy of its own, fetched once a step
  bool gradients = false;  // sums of its own, to which several rounds can add
  bool state = false;      // weights, correction plane and moments: updated on the device
  // Weights and correction plane, which the device updates while the host still has other blocks'
  // to do. The moments for it come as the last backward pass goes on, and stay as they are: the
  // host updates its own later. Their place is that of gradients that have left, if those of all
  // blocks stay, else that of saved tensors that are used up. Only with kNextStepMomentsLater, and
  // either gradients that stay or one round.
  bool master = false;

  bool HasMaster() const { return state || master; }
  bool MomentsVisit() const { return master && !state; }
};

// When the optimizer runs. The maths is the same.
enum class UpdateTime : uint8_t {
  kEndOfStep,
  // The host's part hides under the next step's forward pass: each block is updated before its
  // weights are needed.
  kNextStep,
  // The same, and its moments behind the weights of all blocks, those first to which backward
  // brings new gradients first. Forward waits for less, and the host moves more in all: for steps
  // that leave it the time. The update of settle programs is in one.
  kNextStepMomentsLater,
  // Each block as soon as its gradients are complete, under the rest of the backward pass. For
  // steps that do not clip: the global norm comes too late. Gradients pass through the host in a
  // few buffers, and the store needs no plane for them. One that is not finite ends the run, since
  // other blocks have been updated. No block's state may be on the device, and no sums may wait on
  // the host between rounds.
  kWithBackward,
};

// Whether a step's update is pending when its program ends.
constexpr bool LeavesUpdatePending(UpdateTime time) {
  return time == UpdateTime::kNextStep || time == UpdateTime::kNextStepMomentsLater;
}

struct Policy {
  // Of every layer, unless `savings` has one entry a layer (layer 0 first).
  Saving saving = {};
  std::vector<Saving> savings = {};
  // A step is cut into rounds of this many micro-batches, 0: all. A round goes forward and
  // backward through all blocks, visiting all its micro-batches at each. Between rounds the sums of
  // a layer whose gradients do not stay on the device wait in the host store.
  int32_t micro_batches_per_round = 0;
  // Micro-batches of the first round, if there are rounds; 0: as many as of the others. More of
  // them hide more of the update under their forward pass. What they save for a layer lies, as far
  // as it fits, where the gradients of the layer before it are summed later: the backward pass is
  // through with the one when it begins with the other.
  int32_t micro_batches_in_first_round = 0;
  // What the first round saves of every layer; empty: what the others do. It lies in the memory in
  // which the other rounds save.
  std::vector<Saving> first_savings = {};
  // Device slots through which streamed decoder layers pass. With n slots the last n layers of
  // forward are still there when backward starts.
  int decoder_slots = 2;
  // Rows of logits that exist at one time.
  int64_t head_chunk_rows = 512;
  // Rows of an MLP's intermediate tensors that exist at one time where they are not saved; 0: all.
  int64_t mlp_chunk_rows = 0;
  GradientType gradient_type = GradientType::kFloat32;
  MomentType moment_type = MomentType::kFloat32;  // another only where no state is on the device
  UpdateTime update_time = UpdateTime::kEndOfStep;
  std::vector<BlockPlacement> placements = {};  // by block; empty: everything streams

  Saving SavingOf(int64_t layer, bool first_round = false) const {
    if (first_round && !first_savings.empty()) return first_savings[layer];
    return savings.empty() ? saving : savings[layer];
  }
  // Of the step's `micro_batches`, those of the round that begins with micro-batch `first`.
  int32_t RoundSize(int32_t first, int32_t micro_batches) const;
  // Whether the gradient sums of all blocks have a place of their own.
  bool AllGradientsStay() const;
  BlockPlacement PlacementOf(int64_t block) const {
    return placements.empty() ? BlockPlacement{} : placements[block];
  }
};

// Whether the host store is to have a place for the sums of unfinished steps.
bool HasHostSums(const Policy& policy, int64_t num_layers, int64_t micro_batches);

}  // namespace penstock
