#include "engine/train/checkpoint_planes.h"

#include "engine/base/check.h"

namespace penstock {
namespace {

constexpr std::array kPlanes = {CheckpointPlane::kWeights, CheckpointPlane::kFirstMoment,
                                CheckpointPlane::kSecondMoment, CheckpointPlane::kFirstScales,
                                CheckpointPlane::kSecondScales};
constexpr size_t kPlanesWithoutScales = 3;

bool HoldsScales(CheckpointPlane plane) {
  return plane == CheckpointPlane::kFirstScales || plane == CheckpointPlane::kSecondScales;
}

const char* DtypeOf(CheckpointPlane plane, MomentType type) {
  if (plane == CheckpointPlane::kWeights || HoldsScales(plane)) return "F32";
  switch (type) {
    case MomentType::kFloat32:
      return "F32";
    case MomentType::kBfloat16:
      return "BF16";
    case MomentType::kInt8Blocks:
      return "U8";
  }
  return "?";
}

int64_t ElementBytes(CheckpointPlane plane, MomentType type) {
  if (plane == CheckpointPlane::kWeights || HoldsScales(plane)) return sizeof(float);
  return MomentElementBytes(type);
}

// As std::byte, without writing through it: one function serves stores that may change and others.
std::span<const std::byte> PlaneBytes(const BlockStore& block, CheckpointPlane plane) {
  switch (plane) {
    case CheckpointPlane::kFirstMoment:
      return block.m.empty() ? block.small_m.values : std::as_bytes(block.m);
    case CheckpointPlane::kSecondMoment:
      return block.v.empty() ? block.small_v.values : std::as_bytes(block.v);
    case CheckpointPlane::kFirstScales:
      return std::as_bytes(block.small_m.scales);
    case CheckpointPlane::kSecondScales:
      return std::as_bytes(block.small_v.scales);
    case CheckpointPlane::kWeights:
      break;
  }
  PENSTOCK_CHECK(false, "the weights are two planes");
  return {};
}

}  // namespace

const char* CheckpointPlaneName(CheckpointPlane plane) {
  switch (plane) {
    case CheckpointPlane::kWeights:
      return "weights";
    case CheckpointPlane::kFirstMoment:
      return "m";
    case CheckpointPlane::kSecondMoment:
      return "v";
    case CheckpointPlane::kFirstScales:
      return "m_scales";
    case CheckpointPlane::kSecondScales:
      return "v_scales";
  }
  return "?";
}

std::span<const CheckpointPlane> CheckpointPlanes(MomentType type) {
  return type == MomentType::kInt8Blocks ? std::span(kPlanes)
                                         : std::span(kPlanes).first(kPlanesWithoutScales);
}

StoredTensor CheckpointTensor(CheckpointPlane plane, MomentType type, const Parameter& parameter) {
  StoredTensor tensor{.name = parameter.name, .dtype = DtypeOf(plane, type), .shape = {}};
  const bool scales = HoldsScales(plane);
  const int64_t elements = scales ? MomentBlocks(parameter.size) : parameter.size;
  if (scales) {
    tensor.shape = {elements};
  } else {
    tensor.shape = parameter.shape;
  }
  tensor.bytes = elements * ElementBytes(plane, type);
  return tensor;
}

std::span<const std::byte> MomentMemory(const HostStore& store, CheckpointPlane plane,
                                        BlockId block, const Parameter& parameter) {
  const MomentType type = store.moment_type();
  const int64_t first = HoldsScales(plane)
                            ? FirstScale(store.layout().blocks[Index(block)], parameter)
                            : parameter.offset;
  return PlaneBytes(store.block(block), plane)
      .subspan(first * ElementBytes(plane, type), CheckpointTensor(plane, type, parameter).bytes);
}

std::span<std::byte> MomentMemory(HostStore& store, CheckpointPlane plane, BlockId block,
                                  const Parameter& parameter) {
  const std::span<const std::byte> memory =
      MomentMemory(static_cast<const HostStore&>(store), plane, block, parameter);
  return {const_cast<std::byte*>(memory.data()), memory.size()};
}

}  // namespace penstock
