// How the CPU cuts attention into tasks. Internal to attention*_cpu.cc.
//
// Documents are cut into tiles of kTile tokens, counted from the document's start. Tiles of all
// documents are numbered by slots: document d owns the slots from starts[d] / kTile + d on,
// which always suffices (a start that is not a multiple of kTile costs at most the one extra),
// so a slot's document is found by bisection and no table is needed. Some slots stay empty.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/kernels/isa_dispatch.h"

namespace penstock::attention {

inline constexpr int64_t kTile = 64;
// A tile of scores, or of probabilities.
inline constexpr int64_t kTileElements = kTile * kTile;
// The backward op holds two tiles a worker.
inline constexpr int64_t kTilesPerWorker = 2;

struct Tile {
  int64_t document_begin, document_end;  // rows
  int64_t begin, count;                  // rows; count is 0 for an empty slot
};

inline int64_t NumSlots(int64_t rows, int64_t num_documents) {
  return rows / kTile + num_documents;
}

inline Tile TileOfSlot(const int32_t* starts, int64_t num_documents, int64_t slot) {
  int64_t low = 0;  // the last document whose first slot is not beyond `slot`
  int64_t high = num_documents;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (starts[middle] / kTile + middle <= slot ? low : high) = middle;
  }
  Tile tile{};
  tile.document_begin = starts[low];
  tile.document_end = starts[low + 1];
  tile.begin = tile.document_begin + (slot - (starts[low] / kTile + low)) * kTile;
  tile.count = std::clamp<int64_t>(tile.document_end - tile.begin, 0, kTile);
  return tile;
}

// The first key that `query` sees.
PENSTOCK_ALWAYS_INLINE int64_t FirstKey(int64_t document_begin, int64_t query, int64_t window) {
  return window == 0 ? document_begin : std::max(document_begin, query - window + 1);
}

// Start of the tile of the document that holds `row`.
inline int64_t TileBegin(int64_t document_begin, int64_t row) {
  return document_begin + (row - document_begin) / kTile * kTile;
}

// The columns [begin, end) of a key tile that one query sees.
struct Visible {
  int64_t begin, end;
};

PENSTOCK_ALWAYS_INLINE Visible VisibleKeys(int64_t document_begin, int64_t query, int64_t window,
                                           int64_t keys_begin, int64_t keys) {
  const int64_t begin = FirstKey(document_begin, query, window) - keys_begin;
  return {std::clamp<int64_t>(begin, 0, keys),
          std::clamp<int64_t>(query + 1 - keys_begin, 0, keys)};
}

}  // namespace penstock::attention
