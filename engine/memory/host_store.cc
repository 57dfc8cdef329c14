#include "engine/memory/host_store.h"

#include "engine/base/status.h"
#include "engine/base/units.h"

namespace penstock {
namespace {

// Planes start on cache lines, so vector loads and non-temporal stores are aligned.
constexpr int64_t kPlaneAlignment = 64;

MomentType TypeOf(OptimizerState state) {
  switch (state) {
    case OptimizerState::kBfloat16:
      return MomentType::kBfloat16;
    case OptimizerState::kInt8Blocks:
      return MomentType::kInt8Blocks;
    case OptimizerState::kFloat32:
    case OptimizerState::kNone:
      break;
  }
  return MomentType::kFloat32;
}

int64_t ScalesOf(const BlockLayout& block, OptimizerState state) {
  if (state != OptimizerState::kInt8Blocks) return 0;
  int64_t scales = 0;
  for (const Parameter& parameter : block.parameters) scales += MomentBlocks(parameter.size);
  return scales;
}

int64_t BytesPerBlock(const BlockLayout& block, OptimizerState state, GradientPlane gradient) {
  const int64_t size = block.size;
  int64_t bytes = 2 * RoundUp(size * 2, kPlaneAlignment);
  if (state != OptimizerState::kNone) {
    bytes += 2 * RoundUp(size * MomentElementBytes(TypeOf(state)), kPlaneAlignment);
    bytes += 2 * RoundUp(ScalesOf(block, state) * 4, kPlaneAlignment);
  }
  if (gradient == GradientPlane::kFloat32 || gradient == GradientPlane::kBfloat16OverSums) {
    bytes += RoundUp(size * 4, kPlaneAlignment);
  }
  if (gradient == GradientPlane::kBfloat16) bytes += RoundUp(size * 2, kPlaneAlignment);
  return RoundUp(bytes, kHugePageBytes);
}

template <typename T>
std::span<T> Take(std::byte*& cursor, int64_t count) {
  std::span<T> span(reinterpret_cast<T*>(cursor), count);
  cursor += RoundUp(count * static_cast<int64_t>(sizeof(T)), kPlaneAlignment);
  return span;
}

}  // namespace

int64_t FirstScale(const BlockLayout& block, const Parameter& parameter) {
  int64_t scales = 0;
  for (const Parameter& before : block.parameters) {
    if (before.offset < parameter.offset) scales += MomentBlocks(before.size);
  }
  return scales;
}

MomentType HostStore::moment_type() const { return TypeOf(state_); }

GradientPlane PlaneOf(const Policy& policy, int64_t num_layers, int64_t micro_batches) {
  if (policy.update_time == UpdateTime::kWithBackward) return GradientPlane::kNone;
  if (policy.gradient_type == GradientType::kFloat32) return GradientPlane::kFloat32;
  return HasHostSums(policy, num_layers, micro_batches) ? GradientPlane::kBfloat16OverSums
                                                        : GradientPlane::kBfloat16;
}

int64_t HostStore::BytesNeeded(const ModelLayout& layout, OptimizerState state,
                               GradientPlane gradient) {
  int64_t bytes = 0;
  for (const BlockLayout& block : layout.blocks) bytes += BytesPerBlock(block, state, gradient);
  return bytes;
}

absl::StatusOr<std::unique_ptr<HostStore>> HostStore::Create(const ModelLayout& layout,
                                                             OptimizerState state,
                                                             GradientPlane gradient) {
  PENSTOCK_ASSIGN_OR_RETURN(HostMemory memory,
                            HostMemory::Allocate(BytesNeeded(layout, state, gradient)));
  return std::unique_ptr<HostStore>(new HostStore(layout, std::move(memory), state, gradient));
}

HostStore::HostStore(const ModelLayout& layout, HostMemory memory, OptimizerState state,
                     GradientPlane gradient)
    : layout_(layout), memory_(std::move(memory)), state_(state) {
  std::byte* begin = memory_.data();
  for (const BlockLayout& block : layout_.blocks) {
    std::byte* cursor = begin;
    BlockStore& store = blocks_.emplace_back();
    store.hi = Take<uint16_t>(cursor, block.size);
    store.lo = Take<int16_t>(cursor, block.size);
    if (state == OptimizerState::kFloat32) {
      store.m = Take<float>(cursor, block.size);
      store.v = Take<float>(cursor, block.size);
    } else if (state != OptimizerState::kNone) {
      for (SmallMoment* moment : {&store.small_m, &store.small_v}) {
        moment->values = Take<std::byte>(cursor, block.size * MomentElementBytes(TypeOf(state)));
        moment->scales = Take<float>(cursor, ScalesOf(block, state));
      }
    }
    if (gradient == GradientPlane::kBfloat16) store.gradient_bf16 = Take<bf16>(cursor, block.size);
    if (gradient == GradientPlane::kFloat32)
      store.sums = store.gradient = Take<float>(cursor, block.size);
    if (gradient == GradientPlane::kBfloat16OverSums) {
      store.sums = Take<float>(cursor, block.size);
      store.gradient_bf16 = {reinterpret_cast<bf16*>(store.sums.data()), store.sums.size()};
    }
    block_memory_.emplace_back(begin, BytesPerBlock(block, state, gradient));
    begin += block_memory_.back().size();
  }
}

void HostStore::TouchPages(ThreadPool& pool) {
  for (const BlockStore& block : blocks_) {
    for (const std::span<std::byte> plane :
         {std::as_writable_bytes(block.hi), std::as_writable_bytes(block.lo),
          std::as_writable_bytes(block.m), std::as_writable_bytes(block.v), block.small_m.values,
          block.small_v.values, std::as_writable_bytes(block.sums),
          block.sums.empty() ? std::as_writable_bytes(block.gradient_bf16)
                             : std::span<std::byte>()}) {
      penstock::TouchPages(plane, pool);
    }
  }
}

}  // namespace penstock
