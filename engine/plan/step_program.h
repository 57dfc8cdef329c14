// One training step as data. A planner writes it (train_program.h), Verify() proves it safe
// (verify.h), an executor runs it (exec/executor.h). Executors decide nothing: same program,
// same bits, any backend.
//
// Order: ops of one lane run in list order. Across lanes an op starts only when every op named
// in its `after` has finished; `after` names earlier ops of the list. Nothing else is implied.
//
// A program may begin with what an earlier one left: `held` buffers, and where that leaves its
// update pending the gradients and the clip scale of the step before, which its update ops apply.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "engine/base/ids.h"
#include "engine/plan/policy.h"
#include "engine/plan/update_part.h"

namespace penstock {

enum class Lane : uint8_t { kCopyIn, kCompute, kCopyOut, kHost };
inline constexpr int kLaneCount = 4;
const char* LaneName(Lane lane);

// What a buffer is for; the memory plan sums by it.
enum class BufferClass : uint8_t {
  kWeights,     // one block's weights, in the compute type
  kState,       // one block's correction plane, or its moments (device_state.h)
  kActivation,  // output of a block, or the gradient of one, for one micro-batch
  kSaved,       // intermediate tensors kept for backward
  kGradient,    // one block's gradient sums, fp32, or its gradients when they are complete
  kScratch,     // valid inside one op only
};
const char* BufferClassName(BufferClass buffer_class);

enum class Arena : uint8_t { kDevice, kHost };

// A range of the device arena, or of the locked arena on the host. Ranges may overlap: hazards
// count bytes, not names.
struct Buffer {
  std::string name;
  BufferClass buffer_class = BufferClass::kScratch;
  int64_t offset = 0;
  int64_t bytes = 0;
  Arena arena = Arena::kDevice;
};

// First writer of a sum overwrites it, the others add: no pass that zeroes it.
enum class Accumulate : uint8_t { kOverwrite, kAdd };

// weights <- host planes of `block`.
struct FetchWeights {
  BlockId block;
  BufferId weights;
};
// out <- rows of the embedding table named by the micro-batch's token ids.
struct EmbedForward {
  int32_t micro_batch;
  BufferId weights;
  BufferId out;
};
// out <- decoder block of `in`. Leaves its intermediate tensors in `attention` and, if `saved` is
// kAll, in `mlp`.
struct ForwardBlock {
  BlockId block;
  int32_t micro_batch;
  SaveLevel saved;
  BufferId weights, in, out, attention, mlp, scratch;
};
// Adds the micro-batch's loss to the step's; logits exist for one chunk of rows at a time.
// With gradients: d_in <- d loss / d in, and sums the gradients of the final norm and of the
// matrix the head multiplies by. Without (evaluation): the gradient buffers are kNoBuffer.
struct HeadLoss {
  BlockId block;
  int32_t micro_batch;
  BufferId weights;       // the head block
  BufferId head_weights;  // the block that holds the matrix: same as `weights` unless tied
  BufferId in, d_in;
  BufferId gradients, head_gradients;  // likewise
  BufferId scratch;
  Accumulate accumulate;
};
// d <- d loss / d in of the block, where it was d loss / d out; sums the block's gradients.
// Recomputes into `attention` and `mlp` what `saved` says was not kept.
struct BackwardBlock {
  BlockId block;
  int32_t micro_batch;
  SaveLevel saved;
  BufferId weights, in, attention, mlp, d, gradients, scratch;
  Accumulate accumulate;
};
// Adds d loss / d out to the rows of the embedding table's gradient.
struct EmbedBackward {
  int32_t micro_batch;
  BufferId d, gradients, scratch;
  Accumulate accumulate;
};
// What of a (layer, micro-batch) is saved.
enum class SavedPart : uint8_t { kInput, kAttention, kMlp };
// host <- device, and back: a part of what forward saved for backward.
struct StoreSaved {
  BlockId block;
  int32_t micro_batch;
  SavedPart part;
  BufferId device, host;
};
struct FetchSaved {
  BlockId block;
  int32_t micro_batch;
  SavedPart part;
  BufferId host, device;
};
// out <- complete sums, rounded to bf16. In place when they are one buffer.
struct RoundGradients {
  BlockId block;
  BufferId sums, out;
};
// partial norm of `block` <- sum of squares of its gradients, in the program's gradient type.
struct ReduceNorm {
  BlockId block;
  BufferId gradients;
};
// host gradient plane of `block` <- gradients, in the program's gradient type. Or a buffer on the
// host, if one is named.
struct StoreGradients {
  BlockId block;
  BufferId gradients;
  BufferId host = kNoBuffer;
};
// host sums of `block` <- its sums over `terms` micro-batches, which a later round adds to; and
// back.
struct StoreSums {
  BlockId block;
  BufferId sums;
  int32_t terms;
};
struct FetchSums {
  BlockId block;
  BufferId sums;
  int32_t terms;
};
// Global norm from the partial norms of all blocks; decides the clip scale, or that the step
// changes nothing (no labelled token, norm not finite).
struct ClipScale {};
// Decides before the norm is known, for a step that does not clip: that its updates are applied,
// unless no token has a label or the loss is not finite.
struct DecideUnclipped {};
// Optimizer on the host planes of `block`, unless it has been decided that nothing changes. Takes
// the gradients from a buffer, if one is named: then they count as finite only if the block's own
// partial norm is, and fail the step otherwise.
struct UpdateHost {
  BlockId block;
  BufferId gradients = kNoBuffer;
  UpdatePart part = UpdatePart::kAll;
};
// The same on the device, for a block whose master weights are held there: all of it, or the
// weights, from moments which the host is to update.
struct UpdateDevice {
  BlockId block;
  BufferId weights, correction, moments, gradients;
  UpdatePart part = UpdatePart::kAll;
};
// Master weights <- host planes of `block`, and back.
struct FetchMaster {
  BlockId block;
  BufferId weights, correction;
};
struct StoreMaster {
  BlockId block;
  BufferId weights, correction;
};
// moments <- those of `block` on the host, and back.
struct FetchMoments {
  BlockId block;
  BufferId moments;
};
struct StoreMoments {
  BlockId block;
  BufferId moments;
};

using OpBody =
    std::variant<FetchWeights, EmbedForward, ForwardBlock, HeadLoss, BackwardBlock, EmbedBackward,
                 StoreSaved, FetchSaved, RoundGradients, ReduceNorm, StoreGradients, StoreSums,
                 FetchSums, ClipScale, DecideUnclipped, UpdateHost, UpdateDevice, FetchMaster,
                 StoreMaster, FetchMoments, StoreMoments>;

struct Op {
  Lane lane;
  std::vector<OpId> after;
  OpBody body;  // std::visit: a new op that a backend lacks won't compile.
};

// What a program finds in a buffer when it starts, or leaves there for the next.
enum class HeldContent : uint8_t { kWeights, kCorrection, kMoments, kGradients };
struct Held {
  BufferId buffer;
  BlockId block;
  HeldContent content;
};

// Which gradients the update ops of a program apply.
enum class Updates : uint8_t {
  kNone,
  kPending,   // of the program that ran before: they are there when this one starts
  kThisStep,  // its own
};

struct StepProgram {
  int32_t num_blocks = 0;
  int32_t micro_batches = 0;
  bool tied = false;  // the head multiplies by the embedding table and adds to its gradients
  GradientType gradient_type = GradientType::kFloat32;
  Updates updates = Updates::kNone;
  int64_t arena_bytes = 0;       // budget of the device arena
  int64_t host_arena_bytes = 0;  // likewise on the host
  std::vector<Buffer> buffers;
  std::vector<Held> finds, leaves;
  std::vector<Op> ops;

  const Buffer& buffer(BufferId id) const { return buffers[Index(id)]; }
};

// Bytes of the buffers in an arena, by what they are for. What buffers share counts once, for the
// one that is listed first: the sum is at most the arena.
std::map<BufferClass, int64_t> BytesByClass(const StepProgram& program, Arena arena);

// One line an op, after one line a buffer. Golden tests, logs and error messages share it.
std::string ToText(const StepProgram& program);
std::string OpText(const StepProgram& program, OpId id);

}  // namespace penstock
