// Strong ids: an index of one kind cannot be passed for another.
#pragma once

#include <cstdint>

namespace penstock {

// A block is the unit of streaming: block 0 is the embedding, 1..L the decoder layers, L+1
// the head (final norm, and lm_head unless tied).
enum class BlockId : int32_t {};
enum class BufferId : int32_t {};
enum class OpId : int32_t {};

inline constexpr BufferId kNoBuffer{-1};

constexpr int32_t Index(BlockId id) { return static_cast<int32_t>(id); }
constexpr int32_t Index(BufferId id) { return static_cast<int32_t>(id); }
constexpr int32_t Index(OpId id) { return static_cast<int32_t>(id); }

}  // namespace penstock
