// ProgramMemory: the buffers of a step program. What stays on the device from program to program
// comes first, so that all programs of one policy and shape have it at the same place.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "engine/model/layout.h"
#include "engine/plan/policy.h"
#include "engine/plan/step_program.h"
#include "engine/plan/train_program.h"

namespace penstock {

// What a program is at when it visits a block for a micro-batch. Forward of a step that has a
// backward pass keeps what the policy says; an evaluation keeps nothing.
enum class Pass : uint8_t { kEvaluation, kForward, kBackward };

class ProgramMemory {
 public:
  // The references outlive this object; buffers are added to `program`.
  ProgramMemory(const ModelSpec& spec, const ModelLayout& layout, const Policy& policy,
                const ProgramShape& shape, StepProgram& program);

  // Weights and state that have a place of their own. First of all, in every program.
  void AllocateHeld();
  // Gradient buffers that keep complete gradients until the next step applies them, and the place
  // of moments that come for that. Right after.
  void AllocateHeldGradients();
  // What is saved where moments come later, for training. Then, if at all.
  void AllocateSavedUnderMoments();
  // Slots and scratch.
  void AllocateForward();
  // The other gradient sums, and d, for training.
  void AllocateBackward();

  // Of a block with a place of its own; kNoBuffer otherwise.
  BufferId own_weights(BlockId block) const { return blocks_[Index(block)].weights; }
  // Of a block whose master weights are on the device, and where its moments are or come to.
  BufferId correction(BlockId block) const { return blocks_[Index(block)].correction; }
  BufferId moments(BlockId block) const { return blocks_[Index(block)].moments; }
  // Where the block's sums are made, and where they lie when they are complete and rounded.
  BufferId sums(BlockId block) const { return blocks_[Index(block)].sums; }
  BufferId complete(BlockId block) const { return blocks_[Index(block)].complete; }

  const std::vector<BufferId>& slots() const { return slots_; }
  // Of any op: none leaves anything in it. The head's logits chunk lies there too.
  BufferId scratch() const { return scratch_; }
  BufferId d(int32_t micro_batch) const { return d_[Slot(micro_batch)]; }
  // Blocks whose moments come for an update, in the order in which they do.
  const std::vector<BlockId>& visitors() const { return visitors_; }
  // Moments that come for an update find their place free when the last backward pass is through
  // with this block, the head or a layer, and its gradients have left.
  BlockId MomentsComeAfter(BlockId block) const;

  // Input of `block` for a micro-batch, and what the block's forward op makes of it.
  BufferId Input(int32_t block, int32_t micro_batch, Pass pass);
  BufferId Attention(int32_t block, int32_t micro_batch, Pass pass);
  BufferId Mlp(int32_t block, int32_t micro_batch, Pass pass);
  // The place on the host of a part that is saved there.
  BufferId OnHost(SavedPart part, int32_t block, int32_t micro_batch);

  // The place on the host through which the block's gradients pass to an update with backward.
  BufferId PassingGradients(BlockId block);

  // Sets the program's arena sizes. ResourceExhausted / DEVICE_MEMORY_INSUFFICIENT with the bytes
  // by class if the buffers exceed the budget.
  absl::Status Finish();

 private:
  struct BlockBuffers {
    BufferId weights = kNoBuffer, correction = kNoBuffer, moments = kNoBuffer;
    BufferId sums = kNoBuffer, complete = kNoBuffer;
  };

  bool IsLayer(int64_t block) const { return block >= 1 && block <= spec_.num_layers; }
  std::string Name(int64_t block) const;
  int64_t PartBytes(SavedPart part, SaveLevel level) const;
  Saving SavingOf(int32_t block, int32_t micro_batch) const;
  bool SavedOnHost(int32_t block, int32_t micro_batch) const;
  // Which of the micro-batches that are in flight at one time.
  int32_t Slot(int32_t micro_batch) const;
  int32_t slots_in_flight() const {
    return std::max(first_round_, policy_.micro_batches_per_round);
  }
  // Whether it is of a first round unlike the others.
  bool InOwnFirstRound(int32_t micro_batch) const {
    return has_own_first_round_ && micro_batch < first_round_;
  }
  // Where the tensors of a part go: kept for backward if the layer saves what `kept_at` does or
  // more, else to one place that all share.
  BufferId Tensors(SavedPart part, int32_t block, int32_t micro_batch, Pass pass,
                   SaveLevel kept_at);
  // Of visits that follow each other in a pass, so many as there are places have one each.
  int32_t PassingPlace(int32_t block, int32_t micro_batch, Pass pass) const;
  // The buffer of a micro-batch of the first round inside the gradient sums of the layer before;
  // kNoBuffer if there is no room for it.
  BufferId InSums(SavedPart part, int32_t block, int32_t micro_batch);
  // Where, of so many bytes: one part after the other, of the last micro-batch first, and what does
  // not fit is left out.
  std::optional<int64_t> OffsetInSums(SavedPart part, int32_t block, int32_t micro_batch,
                                      int64_t room) const;
  // What one round saves lies where the others save.
  enum class Region : uint8_t { kFirstRound, kOtherRounds };
  BufferId AllocateSaved(std::string_view what, int32_t block, int32_t micro_batch,
                         BufferClass buffer_class, int64_t bytes, Arena arena);
  BufferId Allocate(std::string name, BufferClass buffer_class, int64_t bytes,
                    Arena arena = Arena::kDevice);
  // What a buffer is called, which is made into text once: "mlp", 3, 1 is mlp3[1].
  struct Key {
    std::string_view what;
    int32_t index = -1, slot = -1;  // -1: not part of the name
    bool first_round = false;       // of its own: first_mlp3[1]
    bool operator==(const Key&) const = default;
    template <typename H>
    friend H AbslHashValue(H hash, const Key& key) {
      return H::combine(std::move(hash), key.what, key.index, key.slot, key.first_round);
    }
  };
  static std::string NameOf(const Key& key);
  BufferId AllocateOnce(const Key& key, BufferClass buffer_class, int64_t bytes,
                        Arena arena = Arena::kDevice);
  void AllocateVisitingMoments();
  absl::Status CheckVisitingMoments() const;
  absl::Status OverBudget() const;

  const ModelSpec& spec_;
  const ModelLayout& layout_;
  const Policy& policy_;
  const ProgramShape& shape_;
  StepProgram& program_;

  std::vector<BlockBuffers> blocks_;
  std::vector<BufferId> slots_, d_;
  BufferId scratch_ = kNoBuffer;
  absl::flat_hash_map<Key, BufferId> by_key_;
  const bool has_own_first_round_;
  const int32_t first_round_;
  int64_t end_ = 0, host_end_ = 0;
  std::vector<BlockId> visitors_;
  int64_t visitors_end_ = 0;  // of moments that come into the place of saved tensors; 0: none
  struct Range {
    int64_t begin = 0, end = 0;
  };
  std::vector<Range> saved_under_moments_;  // by layer, from 1
  // Buffers whose offsets count from the end of the rest, until Finish(); and where the next
  // begins, by arena and region.
  std::vector<BufferId> saved_;
  int64_t saved_end_[2][2] = {};
  int64_t passing_gradients_ = -1;  // where on the host; -1: nowhere yet
};

}  // namespace penstock
