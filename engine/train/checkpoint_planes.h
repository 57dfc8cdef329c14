// What of a block a checkpoint has in files of its own: as which tensors, and where these lie in a
// store.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "engine/memory/host_store.h"
#include "engine/model/layout.h"
#include "engine/plan/moment_type.h"
#include "engine/train/safetensors.h"

namespace penstock {

// The files of a plane begin with its CheckpointPlaneName().
enum class CheckpointPlane : uint8_t {
  kWeights,
  kFirstMoment,
  kSecondMoment,
  // Of moments in 8-bit blocks.
  kFirstScales,
  kSecondScales,
};
// "weights", "m", "v", "m_scales", "v_scales"
const char* CheckpointPlaneName(CheckpointPlane plane);

// Those of a checkpoint with moments of the type, kWeights first.
std::span<const CheckpointPlane> CheckpointPlanes(MomentType type);

// The tensor of a parameter in the files of a plane: under its name, in the type that the store
// has. Of the weights that is the fp32 value of the two planes, in the parameter's shape; moments
// in 8-bit blocks are codes (kernels/moment_codes.h), also in its shape, with their scales, one a
// block, as vectors.
StoredTensor CheckpointTensor(CheckpointPlane plane, MomentType type, const Parameter& parameter);

// Where it lies.
// REQUIRES: a plane of moments, and a store with these.
std::span<std::byte> MomentMemory(HostStore& store, CheckpointPlane plane, BlockId block,
                                  const Parameter& parameter);
std::span<const std::byte> MomentMemory(const HostStore& store, CheckpointPlane plane,
                                        BlockId block, const Parameter& parameter);

}  // namespace penstock
