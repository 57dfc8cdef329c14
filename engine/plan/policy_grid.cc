#include "engine/plan/policy_grid.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/units.h"
#include "engine/plan/device_state.h"
#include "engine/plan/op_cost.h"

namespace penstock {
namespace {

using Order = PolicyGrid::Order;

constexpr int32_t kLargestStreamedRound = 8;
// Each takes the sums over the link once more, both ways.
constexpr int32_t kMostRoundsThroughHost = 8;
// Micro-batches of a first round that saves less: what is recomputed costs as much as half of what
// another micro-batch hides.
constexpr int32_t kFirstRounds[] = {3, 4, 6};
// One part of so many of the layers, whose attention sides the host has room for beside all inputs.
constexpr int64_t kHostAttentionParts[] = {8, 4, 2};
// Blocks whose master weights are on the device without their moments.
constexpr int64_t kMasterBlocks[] = {3, 6, 8, 10};

const char* SavedWords(SaveLevel level) {
  switch (level) {
    case SaveLevel::kAll:
      return "everything";
    case SaveLevel::kAttention:
      return "attention sides";
    case SaveLevel::kInput:
      return "inputs";
  }
  return "?";
}

bool HoldsWeights(Order order) { return order == Order::kRounds || order == Order::kOneRoundHeld; }
bool HoldsSums(Order order) {
  return PolicyGrid::HasRounds(order) && order != Order::kRoundsThroughHost;
}

}  // namespace

PolicyGrid::PolicyGrid(const SearchInput& input)
    : input_(input),
      layers_(input.spec.num_layers),
      blocks_(input.spec.num_blocks()),
      micro_batches_(input.shape.micro_batches),
      product_seconds_(static_cast<double>(micro_batches_ * input.shape.tokens_per_micro_batch) *
                       TrainFlopsPerToken(input.spec, /*context=*/0) / input.machine.matmul_flops),
      with_backward_(input.base.update_time == UpdateTime::kWithBackward) {}

std::vector<int64_t> PolicyGrid::StateBlocks(Order order) const {
  // Who has no room for sums has none for state. On the device moments are fp32.
  const bool no_room = order == Order::kRoundsThroughHost;
  const bool on_host = input_.base.moment_type != MomentType::kFloat32;
  if (input_.space == SearchSpace::kSavingOnly || no_room || with_backward_ || on_host) return {0};
  std::vector<int64_t> grid;
  for (int64_t j = 0; j < blocks_; j += j < 4 ? 1 : j < 8 ? 2 : j < 32 ? 4 : j < 64 ? 8 : 16) {
    grid.push_back(j);
  }
  grid.push_back(blocks_);
  return grid;
}

std::vector<int64_t> PolicyGrid::MasterBlocks(Order order, int64_t state_blocks) const {
  std::vector<int64_t> grid = {0};
  if (!MayHoldMasters(order)) return grid;
  for (int64_t i : kMasterBlocks) {
    if (state_blocks + i > blocks_) break;
    if (HoldsSums(order) && !HasRoomForMoments(state_blocks, i)) break;
    grid.push_back(i);
  }
  return grid;
}

// As BlockPlacement::master says. Where moments come into the place of saved tensors bytes do not
// grow along a line, so all micro-batches are built.
bool PolicyGrid::MayHoldMasters(Order order) const {
  if (input_.space == SearchSpace::kSavingOnly || with_backward_) return false;
  if (input_.base.moment_type != MomentType::kFloat32) return false;
  return HasRounds(order) ? HoldsWeights(order) : micro_batches_ <= kLinearFrom;
}

// In the gradients of the blocks that are not held.
bool PolicyGrid::HasRoomForMoments(int64_t state_blocks, int64_t master_blocks) const {
  int64_t moments = 0, room = 0;
  for (int64_t block = state_blocks; block < blocks_; ++block) {
    const int64_t size = input_.layout.blocks[block].size;
    if (block < state_blocks + master_blocks) {
      moments += DeviceMomentsBytes(size);
    } else {
      room += size * 4;
    }
  }
  return moments <= room;
}

std::vector<PolicyGrid::Kind> PolicyGrid::OrdersAndRounds() const {
  std::vector<Kind> kinds;
  const auto add = [&](Order order, int32_t round) {
    kinds.push_back({order, round, input_.save_at_most, 0});
  };
  const auto add_with_first = [&](Order order, int32_t round, int32_t first, SaveLevel level) {
    if (first + round > micro_batches_ || level < input_.save_at_most) return;
    if (first * layers_ > kScoredVisits) return;
    kinds.push_back({order, round, input_.save_at_most, 0, first, level});
  };
  if (input_.space == SearchSpace::kEverything) {
    if (micro_batches_ > 1) {
      add_with_first(Order::kRounds, 1, 2, input_.save_at_most);
      add(Order::kRounds, 1);
      for (int32_t first : kFirstRounds) {
        add_with_first(Order::kRounds, 1, first, SaveLevel::kAttention);
      }
    }
    add(Order::kOneRoundHeld, 0);
    for (int32_t round = 1; round <= kLargestStreamedRound && round < micro_batches_; round *= 2) {
      if (round * layers_ > kScoredVisits) break;
      add(Order::kRoundsStreamed, round);
    }
    int32_t last = micro_batches_;
    for (int32_t rounds = 2; rounds <= kMostRoundsThroughHost && !with_backward_; ++rounds) {
      const auto round = static_cast<int32_t>(CeilDiv(micro_batches_, rounds));
      if (round == last || round * layers_ > kScoredVisits) continue;
      add(Order::kRoundsThroughHost, last = round);
      for (SaveLevel level : {SaveLevel::kAttention, SaveLevel::kInput}) {
        add_with_first(Order::kRoundsThroughHost, round, 2 * round, level);
      }
    }
  }
  add(Order::kOneRound, 0);
  if (!input_.kept_rounds.has_value()) return kinds;
  std::erase_if(kinds, [&](const Kind& kind) {
    return kind.micro_batches_per_round != input_.kept_rounds->micro_batches_per_round ||
           kind.first_round != input_.kept_rounds->micro_batches_in_first_round;
  });
  return kinds;
}

std::vector<PolicyGrid::Kind> PolicyGrid::Kinds() const {
  std::vector<Kind> kinds;
  for (const Kind& order : OrdersAndRounds()) {
    for (SaveLevel base : {SaveLevel::kAttention, SaveLevel::kInput}) {
      if (base < input_.save_at_most) continue;
      Kind kind = order;
      kind.base = base;
      kinds.push_back(kind);
      if (input_.space == SearchSpace::kSavingOnly) continue;
      for (int64_t host_layers : {CeilDiv(layers_, 2), layers_}) {
        if (HasRounds(kind.order) && host_layers < layers_) continue;
        kind.host_layers = host_layers;
        kinds.push_back(kind);
      }
      if (HasRounds(kind.order) || kind.base != SaveLevel::kInput) continue;
      if (input_.save_at_most == SaveLevel::kInput) continue;
      for (int64_t parts : kHostAttentionParts) {
        kind.host_attention_layers = CeilDiv(layers_, parts);
        kinds.push_back(kind);
      }
    }
  }
  return kinds;
}

// Moments later, where the host is through with both parts before the device is with the products:
// who waits for the host all the time should not give it more to do.
UpdateTime PolicyGrid::UpdateTimeOf(const Point& point) const {
  if (with_backward_) return UpdateTime::kWithBackward;
  if (input_.space != SearchSpace::kEverything || point.state_blocks == blocks_) {
    return UpdateTime::kEndOfStep;
  }
  if (input_.base.moment_type != MomentType::kFloat32) return UpdateTime::kNextStep;
  if (point.master_blocks > 0) return UpdateTime::kNextStepMomentsLater;
  double parameters = 0;
  for (int64_t block = point.state_blocks; block < blocks_; ++block) {
    parameters += static_cast<double>(input_.layout.blocks[block].size);
  }
  const double parts_seconds = (kAdamwWeightsShare + kAdamwMomentsShare) * parameters /
                               Cautious(input_.machine).adamw_parameters;
  return parts_seconds < product_seconds_ ? UpdateTime::kNextStepMomentsLater
                                          : UpdateTime::kNextStep;
}

PolicyGrid::Point PolicyGrid::WithMostSaved(const Kind& kind, Point point) const {
  if (kind.base != input_.save_at_most) point.most_layers = layers_;
  const bool own_first = kind.first_round > 0 && kind.first_base != input_.save_at_most;
  if (own_first) point.first_most_layers = layers_;
  return point;
}

Policy PolicyGrid::Make(const Kind& kind, const Point& point) const {
  Policy policy = input_.base;
  policy.micro_batches_per_round = kind.micro_batches_per_round;
  policy.micro_batches_in_first_round = kind.first_round;
  policy.update_time = UpdateTimeOf(point);
  policy.saving = {kind.base, SavePlace::kDevice};
  policy.savings.assign(layers_, policy.saving);
  for (int64_t layer = 0; layer < layers_; ++layer) {
    if (layer >= layers_ - point.most_layers) {
      policy.savings[layer].level = input_.save_at_most;
    } else if (layer < kind.host_layers) {
      policy.savings[layer].place = SavePlace::kHost;
      if (layer < kind.host_attention_layers) policy.savings[layer].level = SaveLevel::kAttention;
    }
  }
  if (kind.first_round > 0 && kind.first_base != input_.save_at_most) {
    policy.first_savings.assign(layers_, {kind.first_base, SavePlace::kDevice});
    for (int64_t layer = 0; layer < layers_; ++layer) {
      if (layer >= layers_ - point.first_most_layers) {
        policy.first_savings[layer].level = input_.save_at_most;
      } else if (layer < kind.host_layers) {
        policy.first_savings[layer].place = SavePlace::kHost;
      }
    }
  }
  policy.placements.resize(blocks_);
  for (int64_t block = 0; block < blocks_; ++block) {
    policy.placements[block] = {
        .weights = HoldsWeights(kind.order),
        .gradients = HoldsSums(kind.order),
        .state = block < point.state_blocks,
        .master = block >= point.state_blocks && block < point.state_blocks + point.master_blocks};
  }
  return policy;
}

std::string PolicyGrid::FirstWords(const Kind& kind, const Point& point) const {
  if (kind.first_round == 0) return "";
  std::string words = absl::StrCat(", in the first ", kind.first_round);
  if (kind.first_base == input_.save_at_most || point.first_most_layers == layers_) return words;
  absl::StrAppend(&words, " of which ", SavedWords(kind.first_base), " are saved");
  if (point.first_most_layers > 0) {
    absl::StrAppend(&words, " and of the last ", point.first_most_layers, " layers ",
                    SavedWords(input_.save_at_most));
  }
  return words;
}

std::string PolicyGrid::Words(const Kind& kind, const Point& point) const {
  std::string words;
  if (kind.micro_batches_per_round > 0) {
    words =
        absl::StrCat("rounds of ", kind.micro_batches_per_round, " micro-batch",
                     kind.micro_batches_per_round == 1 ? "" : "es", FirstWords(kind, point), ", ");
  }
  absl::StrAppend(&words, HoldsWeights(kind.order) ? "weights resident" : "weights streamed",
                  HoldsSums(kind.order)   ? ", gradient sums resident"
                  : HasRounds(kind.order) ? ", gradient sums on the host between rounds"
                                          : "");
  const int64_t rest = layers_ - point.most_layers;
  const int64_t on_host = std::min(kind.host_layers, rest);
  if (rest == 0 || kind.base == input_.save_at_most) {
    absl::StrAppend(&words, ", ", SavedWords(input_.save_at_most), " saved");
  } else {
    absl::StrAppend(&words, ", ", SavedWords(kind.base), " saved");
    if (point.most_layers > 0) {
      absl::StrAppend(&words, " and ", SavedWords(input_.save_at_most), " of the last ",
                      point.most_layers, " of ", layers_, " layers");
    }
  }
  if (on_host > 0) {
    absl::StrAppend(&words, on_host == layers_
                                ? std::string(" in host memory")
                                : absl::StrCat(", of the first ", on_host, " in host memory"));
  }
  if (on_host > 0 && kind.host_attention_layers > 0) {
    absl::StrAppend(&words, ", with attention sides of the first ",
                    std::min(on_host, kind.host_attention_layers));
  }
  if (with_backward_) return absl::StrCat(words, ", updates with backward");
  if (input_.space == SearchSpace::kSavingOnly) return words;
  return absl::StrCat(
      words, ", optimizer state of ",
      point.state_blocks == blocks_ ? std::string("all") : absl::StrCat(point.state_blocks, " of"),
      " ", blocks_, " blocks on the device",
      point.master_blocks > 0 ? absl::StrCat(", master weights of the next ", point.master_blocks)
                              : "",
      UpdateTimeOf(point) == UpdateTime::kNextStepMomentsLater ? ", moments after all weights"
                                                               : "");
}

}  // namespace penstock
