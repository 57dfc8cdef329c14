// The choices a planner makes for a step. Options choose a program, not branches in a run loop.
#pragma once

#include <cstdint>

namespace penstock {

// What a layer's backward pass finds saved; it computes the rest again. All levels give the
// same bits: a kernel run again on the same input gives the same bits.
enum class SaveLevel : uint8_t {
  kAll,        // nothing is recomputed
  kAttention,  // the attention side is saved, the MLP side recomputed
  kInput,      // only the layer's input is saved
};

struct Policy {
  SaveLevel save_level = SaveLevel::kAll;
  // Device slots through which decoder layers stream. With n slots the last n layers of forward
  // are still there when backward starts, so 2*layers - n fetches a step remain.
  int decoder_slots = 2;
  // Rows of logits that exist at one time.
  int64_t head_chunk_rows = 512;
};

}  // namespace penstock
