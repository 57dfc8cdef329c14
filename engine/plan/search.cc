#include "engine/plan/search.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/plan/device_state.h"
#include "engine/plan/hazards.h"
#include "engine/plan/op_cost.h"
#include "engine/plan/simulate.h"

namespace penstock {
namespace {

// From so many micro-batches in a round on, each adds the same bytes.
constexpr int32_t kLinearFrom = 4;
// Visits of a layer by a micro-batch, beyond which micro-batches are scored by fewer.
constexpr int64_t kScoredVisits = 512;
// Rounds after the first ones all take the same time.
constexpr int32_t kScoredRounds = 3;
// A compute lane so busy is what the step is bound by, whatever else shows.
constexpr double kComputeBound = 0.95;
constexpr int32_t kLargestStreamedRound = 8;
// Each takes the sums over the link once more, both ways.
constexpr int32_t kMostRoundsThroughHost = 8;
// Micro-batches of a first round that saves less: what is recomputed costs as much as half of what
// another micro-batch hides.
constexpr int32_t kFirstRounds[] = {3, 4, 6};
// One part of so many of the layers, whose attention sides the host has room for beside all inputs.
constexpr int64_t kHostAttentionParts[] = {8, 4, 2};
// Blocks whose master weights are on the device without their moments.
constexpr int64_t kMasterBlocks[] = {0, 3, 6, 8, 10};

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

struct Bytes {
  int64_t device = 0, host = 0;
};

struct Score {
  double seconds = 0;
  double host_seconds = 0;  // of the host's ops, each alone
  std::array<double, kLaneCount> busy = {}, exposed = {};
};

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

bool HasRounds(Order order) { return order < Order::kOneRound; }
bool HoldsWeights(Order order) { return order == Order::kRounds || order == Order::kOneRoundHeld; }
bool HoldsSums(Order order) { return HasRounds(order) && order != Order::kRoundsThroughHost; }

// By what candidates are compared, on a cautious machine.
double Weighed(const Score& score) { return score.seconds + kHostWeight * score.host_seconds; }

// Of the profile's rates.
constexpr double kCautiousAdamw = 0.85, kCautiousCopies = 0.9;

// a + (a - b) * times: what a line through two neighbours comes to.
template <typename T, typename Times>
T Extrapolate(T a, T b, Times times) {
  return a + (a - b) * static_cast<T>(times);
}

class Search {
 public:
  explicit Search(const SearchInput& input)
      : input_(input),
        layers_(input.spec.num_layers),
        blocks_(input.spec.num_blocks()),
        micro_batches_(input.shape.micro_batches),
        cautious_(Cautious(input.machine)),
        product_seconds_(static_cast<double>(micro_batches_ * input.shape.tokens_per_micro_batch) *
                         TrainFlopsPerToken(input.spec, /*context=*/0) /
                         input.machine.matmul_flops),
        with_backward_(input.base.update_time == UpdateTime::kWithBackward) {}

  absl::StatusOr<SearchResult> Run() {
    for (const Kind& kind : Kinds()) PENSTOCK_RETURN_IF_ERROR(Try(kind));
    if (outcomes_.empty()) return NoSuchRounds();
    if (!best_.has_value()) return NoneFits();
    AddRunnersUp();
    PENSTOCK_ASSIGN_OR_RETURN(const Score score, ScoreOf(best_->policy, input_.machine));
    best_->step_seconds = score.seconds;
    best_->busy_seconds = score.busy;
    best_->exposed_seconds = score.exposed;
    result_.best = *std::move(best_);
    return std::move(result_);
  }

 private:
  enum class Verdict : uint8_t {
    kUnfit,   // none of the kind fits; `bytes` are what its smallest takes
    kBound,   // it takes at least so many seconds, with more saved than may fit
    kScored,  // its best that fits takes so many
  };
  struct Outcome {
    Kind kind;
    Point point = {};
    Verdict verdict = Verdict::kUnfit;
    double seconds = 0;
    Bytes bytes = {};
  };

  std::vector<int64_t> StateGrid(Order order) const;
  bool CanHoldMasters(Order order, int64_t state_blocks, int64_t master_blocks) const;
  std::vector<Kind> Kinds() const;
  std::vector<Kind> OrdersAndRounds() const;
  int64_t MostLayers(const Kind& kind) const {
    return kind.base == input_.save_at_most ? 0 : layers_;
  }

  int64_t MostFirstLayers(const Kind& kind) const {
    return kind.first_round == 0 || kind.first_base == input_.save_at_most ? 0 : layers_;
  }

  UpdateTime UpdateTimeOf(const Point& point) const;
  std::string FirstWords(const Kind& kind, const Point& point) const;
  Policy Make(const Kind& kind, const Point& point) const;
  std::string Words(const Kind& kind, const Point& point) const;

  absl::StatusOr<StepProgram> Draft(const Policy& policy, int32_t micro_batches);
  absl::StatusOr<Bytes> Drafted(const Policy& policy);
  absl::StatusOr<Bytes> BytesOf(const Kind& kind, const Point& point);
  absl::StatusOr<Score> Simulated(const Policy& policy, int32_t micro_batches, double repeats,
                                  const MachineProfile& machine);
  absl::StatusOr<Score> ScoreOf(const Policy& policy, const MachineProfile& machine);

  absl::StatusOr<Score> MostSaved(const Kind& kind, const Point& most);

  absl::Status Try(const Kind& kind);
  enum class Fits : uint8_t { kYes, kNo };
  absl::StatusOr<Fits> TryState(const Kind& kind, int64_t state_blocks, int64_t master_blocks,
                                Outcome& outcome);
  absl::Status SaveWhatFits(const Kind& kind, Point& point, Bytes& bytes);
  absl::Status Raise(const Kind& kind, int64_t Point::*layers, int64_t high, Point& point,
                     Bytes& bytes);
  static void Note(Outcome& outcome, Verdict verdict, const Point& point, double seconds);
  void Offer(const Kind& kind, const Point& point, const Bytes& bytes, const Score& score);
  absl::Status NoneFits() const;
  absl::Status NoSuchRounds() const;
  void AddRunnersUp();
  std::string Why(const Outcome& outcome) const;

  const SearchInput& input_;
  const int64_t layers_, blocks_;
  const int32_t micro_batches_;
  const MachineProfile cautious_;
  const double product_seconds_;  // of a step that computes nothing twice
  const bool with_backward_;      // updates
  std::optional<PolicyCandidate> best_;
  size_t best_kind_ = 0;  // in outcomes_
  std::vector<Outcome> outcomes_;
  // By order, micro-batches of a round, those of a first round of its own, blocks with state,
  // blocks with master weights alone.
  std::map<std::tuple<Order, int32_t, int32_t, int64_t, int64_t>, Score> everything_saved_;
  std::map<std::tuple<Order, int64_t, int64_t>, Bytes> state_bytes_;  // by order, likewise
  // Without state: of the kind that is tried, by layers that save most, likewise in a first round.
  std::map<std::pair<int64_t, int64_t>, Bytes> saved_bytes_;
  SearchResult result_;
};

std::vector<int64_t> Search::StateGrid(Order order) const {
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

// As BlockPlacement::master says. Where moments come into the place of gradients there is room for
// so many; elsewhere bytes do not grow along a line, so all micro-batches are built.
bool Search::CanHoldMasters(Order order, int64_t state_blocks, int64_t master_blocks) const {
  if (master_blocks == 0) return true;
  if (input_.space == SearchSpace::kSavingOnly || with_backward_) return false;
  if (input_.base.moment_type != MomentType::kFloat32) return false;
  if (state_blocks + master_blocks > blocks_) return false;
  if (!HasRounds(order)) return micro_batches_ <= kLinearFrom;
  if (!HoldsWeights(order)) return false;
  int64_t moments = 0, room = 0;
  for (int64_t block = state_blocks; block < blocks_; ++block) {
    const int64_t size = input_.layout.blocks[block].size;
    if (block < state_blocks + master_blocks) {
      moments += MakeDeviceMomentsLayout(size).bytes;
    } else {
      room += size * 4;
    }
  }
  return moments <= room;
}

std::vector<Kind> Search::OrdersAndRounds() const {
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

std::vector<Kind> Search::Kinds() const {
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
UpdateTime Search::UpdateTimeOf(const Point& point) const {
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
  const double parts_seconds = 2 * kAdamwPartShare * parameters / cautious_.adamw_parameters;
  return parts_seconds < product_seconds_ ? UpdateTime::kNextStepMomentsLater
                                          : UpdateTime::kNextStep;
}

Policy Search::Make(const Kind& kind, const Point& point) const {
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

std::string Search::FirstWords(const Kind& kind, const Point& point) const {
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

std::string Search::Words(const Kind& kind, const Point& point) const {
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

absl::StatusOr<StepProgram> Search::Draft(const Policy& policy, int32_t micro_batches) {
  ProgramShape shape = input_.shape;
  shape.micro_batches = micro_batches;
  shape.arena_budget_bytes = 0;
  PENSTOCK_ASSIGN_OR_RETURN(StepProgram program,
                            DraftTrainProgram(input_.spec, input_.layout, policy, shape));
  const auto ops = static_cast<int64_t>(program.ops.size());
  ++result_.programs;
  result_.ops += ops;
  if (input_.effort != nullptr) input_.effort->ops += ops;
  return program;
}

absl::StatusOr<Bytes> Search::Drafted(const Policy& policy) {
  // Later rounds use what the first did.
  const int32_t enough =
      policy.micro_batches_per_round > 0
          ? policy.micro_batches_per_round + std::max(1, policy.micro_batches_in_first_round)
          : kLinearFrom;
  const int32_t built = std::min(micro_batches_, enough);
  PENSTOCK_ASSIGN_OR_RETURN(const StepProgram program, Draft(policy, built));
  Bytes bytes = {program.arena_bytes, program.host_arena_bytes};
  if (HasHostSums(policy, layers_, micro_batches_)) bytes.host += input_.host_sums_bytes;
  if (policy.micro_batches_per_round > 0 || built == micro_batches_) return bytes;
  PENSTOCK_ASSIGN_OR_RETURN(const StepProgram less, Draft(policy, built - 1));
  bytes.device = Extrapolate(bytes.device, less.arena_bytes, micro_batches_ - built);
  bytes.host = Extrapolate(bytes.host, less.host_arena_bytes, micro_batches_ - built);
  return bytes;
}

// What is saved and the state on the device lie side by side, whatever there is of either: bytes
// are drafted with no state, and what state adds is drafted with as little saved as the order can.
// But in one round visiting moments lie under what is saved.
absl::StatusOr<Bytes> Search::BytesOf(const Kind& kind, const Point& point) {
  if (point.master_blocks > 0 && !HasRounds(kind.order)) return Drafted(Make(kind, point));
  const std::pair layers(point.most_layers, point.first_most_layers);
  auto saved = saved_bytes_.find(layers);
  if (saved == saved_bytes_.end()) {
    Point without_state = point;
    without_state.state_blocks = without_state.master_blocks = 0;
    PENSTOCK_ASSIGN_OR_RETURN(const Bytes drafted, Drafted(Make(kind, without_state)));
    saved = saved_bytes_.emplace(layers, drafted).first;
  }
  Bytes bytes = saved->second;
  if (point.state_blocks == 0 && point.master_blocks == 0) return bytes;
  const std::tuple blocks(kind.order, point.state_blocks, point.master_blocks);
  auto state = state_bytes_.find(blocks);
  if (state == state_bytes_.end()) {
    const Point least = {.state_blocks = point.state_blocks, .master_blocks = point.master_blocks};
    PENSTOCK_ASSIGN_OR_RETURN(const Bytes with, Drafted(Make(kind, least)));
    PENSTOCK_ASSIGN_OR_RETURN(const Bytes without, BytesOf(kind, {}));
    const Bytes added = {with.device - without.device, with.host - without.host};
    state = state_bytes_.emplace(blocks, added).first;
  }
  bytes.device += state->second.device;
  bytes.host += state->second.host;
  return bytes;
}

absl::StatusOr<Score> Search::Simulated(const Policy& policy, int32_t micro_batches, double repeats,
                                        const MachineProfile& machine) {
  PENSTOCK_ASSIGN_OR_RETURN(StepProgram program, Draft(policy, micro_batches));
  DeriveOrder(program);
  const std::vector<double> op_seconds =
      OpSeconds(program, input_.spec, input_.layout,
                {.tokens_per_micro_batch = input_.shape.tokens_per_micro_batch,
                 .mean_document_tokens = input_.mean_document_tokens,
                 .head_chunk_rows = policy.head_chunk_rows,
                 .element_bytes = input_.shape.element_bytes,
                 .moment_type = policy.moment_type,
                 .micro_batches_per_op = repeats,
                 .share_of_step = repeats * micro_batches / micro_batches_},
                machine);
  const Simulation simulation = Simulate(program, op_seconds, ContentionOf(machine));
  double host_seconds = 0;
  for (size_t i = 0; i < op_seconds.size(); ++i) {
    if (program.ops[i].lane == Lane::kHost) host_seconds += op_seconds[i];
  }
  return Score{simulation.seconds, host_seconds, simulation.busy_seconds,
               simulation.exposed_seconds};
}

absl::StatusOr<Score> Search::ScoreOf(const Policy& policy, const MachineProfile& machine) {
  const int32_t round = policy.micro_batches_per_round;
  if (round == 0) {
    const auto few = static_cast<int32_t>(
        std::max<int64_t>(kLinearFrom, kScoredVisits / std::max<int64_t>(1, layers_)));
    const int32_t built = std::min(micro_batches_, few);
    return Simulated(policy, built, static_cast<double>(micro_batches_) / built, machine);
  }
  const int32_t first = policy.micro_batches_in_first_round;
  const int32_t extra = first > 0 ? first - round : 0;
  // With the same rest in the last round as the whole step has.
  const int32_t some = kScoredRounds * round + extra + (micro_batches_ - extra) % round;
  if (micro_batches_ <= some) return Simulated(policy, micro_batches_, 1, machine);
  PENSTOCK_ASSIGN_OR_RETURN(Score score, Simulated(policy, some, 1, machine));
  PENSTOCK_ASSIGN_OR_RETURN(const Score less, Simulated(policy, some - round, 1, machine));
  const int32_t rounds_left = (micro_batches_ - some) / round;
  score.seconds = Extrapolate(score.seconds, less.seconds, rounds_left);
  score.host_seconds = Extrapolate(score.host_seconds, less.host_seconds, rounds_left);
  for (int lane = 0; lane < kLaneCount; ++lane) {
    score.busy[lane] = Extrapolate(score.busy[lane], less.busy[lane], rounds_left);
    score.exposed[lane] = Extrapolate(score.exposed[lane], less.exposed[lane], rounds_left);
  }
  return score;
}

// With as much saved as the kind can. Kinds of one order differ in what else they save, so with
// everything saved on the device they are the same, and that is simulated once.
absl::StatusOr<Score> Search::MostSaved(const Kind& kind, const Point& most) {
  const Policy policy = Make(kind, most);
  const auto is_most = [&](const Saving& saving) {
    return saving.level == input_.save_at_most && saving.place == SavePlace::kDevice;
  };
  if (!std::all_of(policy.savings.begin(), policy.savings.end(), is_most) ||
      !std::all_of(policy.first_savings.begin(), policy.first_savings.end(), is_most)) {
    return ScoreOf(policy, cautious_);
  }
  const auto key = std::tuple(kind.order, kind.micro_batches_per_round, kind.first_round,
                              most.state_blocks, most.master_blocks);
  if (const auto known = everything_saved_.find(key); known != everything_saved_.end()) {
    return known->second;
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Score score, ScoreOf(policy, cautious_));
  everything_saved_.emplace(key, score);
  return score;
}

// First the rounds that there are more of.
absl::Status Search::SaveWhatFits(const Kind& kind, Point& point, Bytes& bytes) {
  PENSTOCK_RETURN_IF_ERROR(Raise(kind, &Point::most_layers, MostLayers(kind), point, bytes));
  if (MostFirstLayers(kind) == 0) return absl::OkStatus();
  return Raise(kind, &Point::first_most_layers, MostFirstLayers(kind), point, bytes);
}

// The largest number of `layers` up to `high` that fits, where 0 does. Bytes grow with it, and
// along a line but at its ends: interpolation mostly meets it at once.
absl::Status Search::Raise(const Kind& kind, int64_t Point::*layers, int64_t high, Point& point,
                           Bytes& bytes) {
  const auto bytes_at = [&](int64_t count) {
    Point at = point;
    at.*layers = count;
    return BytesOf(kind, at);
  };
  int64_t low = 0;
  Bytes at_low = bytes;
  PENSTOCK_ASSIGN_OR_RETURN(Bytes at_high, bytes_at(high));
  if (at_high.device <= input_.device_bytes) {
    bytes = at_high;
    point.*layers = high;
    return absl::OkStatus();
  }
  while (high - low > 1) {
    const double share = static_cast<double>(input_.device_bytes - at_low.device) /
                         static_cast<double>(at_high.device - at_low.device);
    const int64_t guess = std::clamp(
        low + static_cast<int64_t>(share * static_cast<double>(high - low)), low + 1, high - 1);
    PENSTOCK_ASSIGN_OR_RETURN(const Bytes at_guess, bytes_at(guess));
    if (at_guess.device <= input_.device_bytes) {
      low = guess;
      at_low = at_guess;
    } else {
      high = guess;
      at_high = at_guess;
    }
  }
  bytes = at_low;
  point.*layers = low;
  return absl::OkStatus();
}

void Search::Note(Outcome& outcome, Verdict verdict, const Point& point, double seconds) {
  if (outcome.verdict != Verdict::kUnfit && outcome.seconds <= seconds) return;
  outcome.verdict = verdict;
  outcome.point = point;
  outcome.seconds = seconds;
}

void Search::Offer(const Kind& kind, const Point& point, const Bytes& bytes, const Score& score) {
  if (best_.has_value() && Weighed(score) >= best_->weighed_seconds) return;
  best_kind_ = outcomes_.size() - 1;
  best_ = PolicyCandidate{.policy = Make(kind, point),
                          .words = Words(kind, point),
                          .arena_bytes = bytes.device,
                          .host_arena_bytes = bytes.host,
                          .weighed_seconds = Weighed(score)};
}

absl::Status Search::Try(const Kind& kind) {
  if (result_.ops > kMaxSearchOps) return absl::OkStatus();
  Outcome& outcome = outcomes_.emplace_back(Outcome{.kind = kind});
  saved_bytes_.clear();
  PENSTOCK_ASSIGN_OR_RETURN(outcome.bytes, BytesOf(kind, {}));
  if (outcome.bytes.device > input_.device_bytes) return absl::OkStatus();
  for (int64_t state_blocks : StateGrid(kind.order)) {
    for (int64_t master_blocks : kMasterBlocks) {
      if (!CanHoldMasters(kind.order, state_blocks, master_blocks)) break;
      if (result_.ops > kMaxSearchOps) return absl::OkStatus();
      PENSTOCK_ASSIGN_OR_RETURN(const Fits fits,
                                TryState(kind, state_blocks, master_blocks, outcome));
      // More takes more.
      if (fits == Fits::kNo && master_blocks == 0) return absl::OkStatus();
      if (fits == Fits::kNo) break;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Search::Fits> Search::TryState(const Kind& kind, int64_t state_blocks,
                                              int64_t master_blocks, Outcome& outcome) {
  const Point least = {.state_blocks = state_blocks, .master_blocks = master_blocks};
  Point most = least;
  most.most_layers = MostLayers(kind);
  most.first_most_layers = MostFirstLayers(kind);
  PENSTOCK_ASSIGN_OR_RETURN(Score score, MostSaved(kind, most));
  const double seconds = Weighed(score);
  const bool loses = best_.has_value() && seconds >= best_->weighed_seconds;
  // What loses is told only of where it loses least.
  if (loses && outcome.verdict != Verdict::kUnfit && seconds >= outcome.seconds) return Fits::kYes;
  PENSTOCK_ASSIGN_OR_RETURN(Bytes bytes, BytesOf(kind, least));
  if (bytes.device > input_.device_bytes) return Fits::kNo;
  if (loses) {
    Note(outcome, Verdict::kBound, most, seconds);
    return Fits::kYes;
  }
  Point point = least;
  PENSTOCK_RETURN_IF_ERROR(SaveWhatFits(kind, point, bytes));
  if (bytes.host > input_.host_bytes) return Fits::kYes;
  if (point.most_layers < most.most_layers || point.first_most_layers < most.first_most_layers) {
    PENSTOCK_ASSIGN_OR_RETURN(score, ScoreOf(Make(kind, point), cautious_));
  }
  Note(outcome, Verdict::kScored, point, Weighed(score));
  Offer(kind, point, bytes, score);
  return Fits::kYes;
}

absl::Status Search::NoneFits() const {
  const Outcome* least = nullptr;
  for (const Outcome& outcome : outcomes_) {
    if (outcome.bytes.host > input_.host_bytes) continue;
    if (least == nullptr || outcome.bytes.device < least->bytes.device) least = &outcome;
  }
  if (least == nullptr) least = &outcomes_.front();
  return Error(absl::StatusCode::kResourceExhausted, reason::kDeviceMemoryInsufficient,
               absl::StrCat("a step needs at least ", FormatBytes(least->bytes.device),
                            " of device memory (", Words(least->kind, {}), "), ",
                            FormatBytes(input_.device_bytes), " usable"),
               {{"needed_bytes", absl::StrCat(least->bytes.device)},
                {"usable_bytes", absl::StrCat(input_.device_bytes)},
                {"limit_source", "device memory"}});
}

absl::Status Search::NoSuchRounds() const {
  return Error(
      absl::StatusCode::kResourceExhausted, reason::kDeviceMemoryInsufficient,
      absl::StrCat("no policy here has the rounds of ", input_.kept_rounds->micro_batches_per_round,
                   " micro-batches that are to be kept"),
      {{"needed_bytes", "0"},
       {"usable_bytes", absl::StrCat(input_.device_bytes)},
       {"limit_source", "device memory"}});
}

// Of each order of visits the best that was not chosen.
void Search::AddRunnersUp() {
  std::map<std::pair<Order, int32_t>, const Outcome*> by_order;
  const auto precedes = [](const Outcome& a, const Outcome& b) {
    const bool a_unfit = a.verdict == Verdict::kUnfit, b_unfit = b.verdict == Verdict::kUnfit;
    if (a_unfit || b_unfit) return !a_unfit || (b_unfit && a.bytes.device < b.bytes.device);
    return a.seconds < b.seconds;
  };
  for (size_t i = 0; i < outcomes_.size(); ++i) {
    const Outcome& outcome = outcomes_[i];
    if (i == best_kind_ || Words(outcome.kind, outcome.point) == best_->words) continue;
    const Outcome*& kept = by_order[{outcome.kind.order, outcome.kind.micro_batches_per_round}];
    if (kept == nullptr || precedes(outcome, *kept)) kept = &outcome;
  }
  std::vector<const Outcome*> sorted;
  for (const auto& [order, outcome] : by_order) sorted.push_back(outcome);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const Outcome* a, const Outcome* b) { return precedes(*a, *b); });
  for (const Outcome* outcome : sorted) {
    result_.runners_up.push_back({Words(outcome->kind, outcome->point), Why(*outcome)});
  }
}

std::string Search::Why(const Outcome& outcome) const {
  if (outcome.verdict != Verdict::kUnfit) {
    return absl::StrFormat("%s%.1f%% slower", outcome.verdict == Verdict::kBound ? "at least " : "",
                           100 * (outcome.seconds / best_->weighed_seconds - 1));
  }
  const bool device = outcome.bytes.device > input_.device_bytes;
  return absl::StrCat("needs ",
                      FormatBytes(device ? outcome.bytes.device - input_.device_bytes
                                         : outcome.bytes.host - input_.host_bytes),
                      " more of ", device ? "device" : "host", " memory");
}

}  // namespace

MachineProfile Cautious(const MachineProfile& machine) {
  MachineProfile cautious = machine;
  cautious.adamw_parameters *= kCautiousAdamw;
  cautious.copy_in_bytes *= kCautiousCopies;
  cautious.copy_out_bytes *= kCautiousCopies;
  cautious.host_bytes *= kCautiousAdamw;
  return cautious;
}

absl::StatusOr<SearchResult> ChoosePolicy(const SearchInput& input) { return Search(input).Run(); }

std::string BindingResource(const PolicyCandidate& candidate) {
  const auto lane_of = [](Lane lane) { return static_cast<int>(lane); };
  const double busy = candidate.busy_seconds[lane_of(Lane::kCompute)];
  const std::pair<Lane, const char*> others[] = {{Lane::kHost, "AdamW on the host"},
                                                 {Lane::kCopyIn, "copies to the device"},
                                                 {Lane::kCopyOut, "copies from the device"}};
  const auto& worst =
      *std::max_element(std::begin(others), std::end(others), [&](const auto& a, const auto& b) {
        return candidate.exposed_seconds[lane_of(a.first)] <
               candidate.exposed_seconds[lane_of(b.first)];
      });
  if (busy >= kComputeBound * candidate.step_seconds) {
    return absl::StrFormat("compute: busy %.0f%% of the step", 100 * busy / candidate.step_seconds);
  }
  return absl::StrFormat("%s: %.3g s of the step exposed, compute busy %.0f%%", worst.second,
                         candidate.exposed_seconds[lane_of(worst.first)],
                         100 * busy / candidate.step_seconds);
}

}  // namespace penstock
