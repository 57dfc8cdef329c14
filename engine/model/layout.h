// Where each parameter of a model lies inside its block, and what Hugging Face calls it.
//
// A block's parameters are one contiguous run of elements, so a block crosses the link as one
// copy. Inside a block the parameters that one GEMM multiplies by are neighbours without a
// gap: q, k, v weights form one [q+2kv, hidden] matrix, their biases one vector, gate and up
// one [2*intermediate, hidden] matrix. Groups start at multiples of kParameterAlignment
// elements; the gaps between hold zeros and have zero gradients.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/ids.h"
#include "engine/model/model_spec.h"

namespace penstock {

inline constexpr int64_t kParameterAlignment = 64;  // elements

// The role of a parameter in the maths; kernels find their operands by it.
enum class Role : uint8_t {
  kEmbedding,
  kInputNorm,
  kQWeight,
  kKWeight,
  kVWeight,
  kQBias,
  kKBias,
  kVBias,
  kQNorm,
  kKNorm,
  kOWeight,
  kOBias,
  kPostNorm,
  kGateWeight,
  kUpWeight,
  kGateBias,
  kUpBias,
  kDownWeight,
  kDownBias,
  kFinalNorm,
  kHeadWeight,
};

// AdamW's decoupled decay spares norms and biases (every 1-dimensional parameter).
enum class Decay : uint8_t { kNone, kApply };

struct Parameter {
  Role role;
  std::string name;            // Hugging Face name, "model.layers.3.mlp.up_proj.weight"
  std::vector<int64_t> shape;  // as stored: linear weights are [out, in]
  int64_t offset = 0;          // in elements, from the start of the block
  int64_t size = 0;            // product of shape
  Decay decay = Decay::kApply;
};

struct BlockLayout {
  BlockId block;
  std::vector<Parameter> parameters;  // by ascending offset
  int64_t size = 0;                   // in elements, padding included; multiple of the alignment

  // Null if this block has no such parameter.
  const Parameter* Find(Role role) const;
  // REQUIRES: the block has it.
  int64_t OffsetOf(Role role) const;
};

struct ModelLayout {
  std::vector<BlockLayout> blocks;  // by BlockId
  int64_t parameter_count = 0;      // real parameters, padding and tied copies left out
  int64_t max_decoder_block_size = 0;
};

// Pure function of the spec. Decoder layers of one spec all have the same layout but for names.
ModelLayout MakeLayout(const ModelSpec& spec);

}  // namespace penstock
