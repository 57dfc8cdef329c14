// What each op reads and writes, and what it believes the bytes to mean. The one table behind
// DeriveOrder (which writes hazards into a program) and Verify (which proves them).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/step_program.h"

namespace penstock {

// A thing ops meet at. `index` is a BufferId for kBuffer, a BlockId for the per-block kinds and
// 0 for the others.
enum class ResourceKind : uint8_t {
  kBuffer,
  kHostWeights,    // hi and lo planes of a block
  kHostOptimizer,  // m and v of a block
  kHostGradient,   // gradient plane of a block, or its sums between rounds
  kNormPartial,    // sum of squares of a block's gradients
  kClipScale,
  kLoss,
};

// What bytes mean. A reader states what it expects, a writer what it leaves.
enum class Meaning : uint8_t {
  kNothing,             // scratch: the writer leaves nothing that may be read
  kWeights,             // of block
  kActivation,          // input of block, of micro-batch
  kActivationGradient,  // of the loss by the input of block, of micro-batch
  kAttentionTensors,    // of block, of micro-batch
  kMlpTensors,          // likewise
  kGradients,           // sums of block, over as many terms as `micro_batch` says
  kRounded,             // complete gradients of block in bf16
  kCorrection,          // correction plane of block
  kMoments,             // m and v of block
  kValue,               // of a host resource; of kHostGradient complete gradients
};

struct Content {
  Meaning meaning = Meaning::kNothing;
  int32_t block = 0;
  int32_t micro_batch = 0;
  bool operator==(const Content&) const = default;
};

enum class AccessMode : uint8_t { kRead, kWrite, kUpdate };  // kUpdate reads, then writes

struct Access {
  ResourceKind kind;
  int32_t index;
  AccessMode mode;
  Content reads;   // expected before, for kRead and kUpdate
  Content writes;  // left behind, for kWrite and kUpdate
};

using AccessList = std::vector<Access>;

// Terms that the gradient sums of `block` have when they are complete: one a micro-batch, two
// where a tied head adds to the embedding's.
int32_t CompleteSums(const StepProgram& program, int32_t block);
// Complete gradients of `block`, as norm, store and update expect them.
Content CompleteGradients(const StepProgram& program, int32_t block);
Content ToContent(const StepProgram& program, const Held& held);

// REQUIRES: the op's block, micro-batch and buffer ids are in range.
AccessList AccessesOf(const StepProgram& program, const Op& op);

}  // namespace penstock
