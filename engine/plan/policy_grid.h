// PolicyGrid: the candidates that search.h lists. A kind of policy is what all its points share; a
// point says how many layers save most, and how many blocks hold what on the device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/plan/policy.h"
#include "engine/plan/search.h"

namespace penstock {

// From so many micro-batches in a round on, each adds the same bytes.
inline constexpr int32_t kLinearFrom = 4;
// Visits of a layer by a micro-batch, beyond which micro-batches are scored by fewer.
inline constexpr int64_t kScoredVisits = 512;

class PolicyGrid {
 public:
  enum class Order : uint8_t {
    kRounds,
    kRoundsStreamed,
    kRoundsThroughHost,
    kOneRound,
    kOneRoundHeld,
  };

  // What all candidates share of which the number of layers that save most, k, and the numbers of
  // blocks with state, j, and with master weights alone on the device, i, are chosen.
  struct Kind {
    Order order;
    int32_t micro_batches_per_round;  // 0: all
    SaveLevel base;                   // of all layers but the last k
    int64_t host_layers;              // of those, the first so many save on the host
    // Micro-batches of a first round of its own and what it saves of all but its last layers; 0: as
    // the others.
    int32_t first_round = 0;
    SaveLevel first_base = SaveLevel::kAll;
    // Of the layers that save their input on the host, the first so many save their attention side
    // there as well.
    int64_t host_attention_layers = 0;
  };

  struct Point {
    int64_t state_blocks = 0;       // j
    int64_t master_blocks = 0;      // i
    int64_t most_layers = 0;        // k
    int64_t first_most_layers = 0;  // likewise in a first round of its own
  };

  // `input` outlives this object.
  explicit PolicyGrid(const SearchInput& input);

  std::vector<Kind> Kinds() const;
  // By j, and by i beside j: ascending from 0. More takes more memory.
  std::vector<int64_t> StateBlocks(Order order) const;
  std::vector<int64_t> MasterBlocks(Order order, int64_t state_blocks) const;
  // `point` with the largest k, in a first round of its own as well.
  Point WithMostSaved(const Kind& kind, Point point) const;

  Policy Make(const Kind& kind, const Point& point) const;
  // How a step runs, for people.
  std::string Words(const Kind& kind, const Point& point) const;

  static bool HasRounds(Order order) { return order < Order::kOneRound; }

 private:
  std::vector<Kind> OrdersAndRounds() const;
  bool MayHoldMasters(Order order) const;
  bool HasRoomForMoments(int64_t state_blocks, int64_t master_blocks) const;
  UpdateTime UpdateTimeOf(const Point& point) const;
  std::string FirstWords(const Kind& kind, const Point& point) const;

  const SearchInput& input_;
  const int64_t layers_, blocks_;
  const int32_t micro_batches_;
  const double product_seconds_;  // of a step that computes nothing twice
  const bool with_backward_;      // updates
};

}  // namespace penstock
