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
#include "engine/plan/hazards.h"
#include "engine/plan/op_cost.h"
#include "engine/plan/policy_grid.h"
#include "engine/plan/simulate.h"

namespace penstock {
namespace {

// Rounds after the first ones all take the same time.
constexpr int32_t kScoredRounds = 3;
// A compute lane so busy is what the step is bound by, whatever else shows.
constexpr double kComputeBound = 0.95;

using Order = PolicyGrid::Order;
using Kind = PolicyGrid::Kind;
using Point = PolicyGrid::Point;

struct Bytes {
  int64_t device = 0, host = 0;
};

struct Score {
  double seconds = 0;
  double host_seconds = 0;  // of the host's ops, each alone
  std::array<double, kLaneCount> busy = {}, exposed = {};
};

// By what candidates are compared, on a cautious machine.
double Weighed(const Score& score) { return score.seconds + kHostWeight * score.host_seconds; }

// Of the profile's rates. AdamW on 14 cards took 0.63 to 1.25 of what their calibrations gave, on
// most about as long.
constexpr double kCautiousAdamw = 0.95, kCautiousCopies = 0.9;

// a + (a - b) * times: what a line through two neighbours comes to.
template <typename T, typename Times>
T Extrapolate(T a, T b, Times times) {
  return a + (a - b) * static_cast<T>(times);
}

class Search {
 public:
  explicit Search(const SearchInput& input)
      : input_(input),
        grid_(input),
        layers_(input.spec.num_layers),
        micro_batches_(input.shape.micro_batches),
        cautious_(Cautious(input.machine)) {}

  absl::StatusOr<SearchResult> Run() {
    for (const Kind& kind : grid_.Kinds()) PENSTOCK_RETURN_IF_ERROR(Try(kind));
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
  absl::StatusOr<Bytes> LeastBytes(const Kind& kind, const Point& least);
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
  const PolicyGrid grid_;
  const int64_t layers_;
  const int32_t micro_batches_;
  const MachineProfile cautious_;
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
  if (point.master_blocks > 0 && !PolicyGrid::HasRounds(kind.order))
    return Drafted(grid_.Make(kind, point));
  const std::pair layers(point.most_layers, point.first_most_layers);
  auto saved = saved_bytes_.find(layers);
  if (saved == saved_bytes_.end()) {
    Point without_state = point;
    without_state.state_blocks = without_state.master_blocks = 0;
    PENSTOCK_ASSIGN_OR_RETURN(const Bytes drafted, Drafted(grid_.Make(kind, without_state)));
    saved = saved_bytes_.emplace(layers, drafted).first;
  }
  Bytes bytes = saved->second;
  if (point.state_blocks == 0 && point.master_blocks == 0) return bytes;
  const std::tuple blocks(kind.order, point.state_blocks, point.master_blocks);
  auto state = state_bytes_.find(blocks);
  if (state == state_bytes_.end()) {
    const Point least = {.state_blocks = point.state_blocks, .master_blocks = point.master_blocks};
    PENSTOCK_ASSIGN_OR_RETURN(const Bytes with, Drafted(grid_.Make(kind, least)));
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
  const Policy policy = grid_.Make(kind, most);
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

// With nothing saved that need not be. Where that does not fit, of this and of all that the kind
// can save what takes less: what is not saved is computed again in a place of its own, which can be
// the larger one.
absl::StatusOr<Bytes> Search::LeastBytes(const Kind& kind, const Point& least) {
  PENSTOCK_ASSIGN_OR_RETURN(const Bytes little, BytesOf(kind, least));
  if (little.device <= input_.device_bytes) return little;
  PENSTOCK_ASSIGN_OR_RETURN(const Bytes much, BytesOf(kind, grid_.WithMostSaved(kind, least)));
  return much.device < little.device ? much : little;
}

// As much as fits, where LeastBytes() do. First the rounds that there are more of.
absl::Status Search::SaveWhatFits(const Kind& kind, Point& point, Bytes& bytes) {
  const Point most = grid_.WithMostSaved(kind, point);
  PENSTOCK_ASSIGN_OR_RETURN(bytes, BytesOf(kind, most));
  if (bytes.device <= input_.device_bytes) {
    point = most;
    return absl::OkStatus();
  }
  PENSTOCK_ASSIGN_OR_RETURN(bytes, BytesOf(kind, point));
  for (int64_t Point::*layers : {&Point::most_layers, &Point::first_most_layers}) {
    if (most.*layers == 0) continue;
    PENSTOCK_RETURN_IF_ERROR(Raise(kind, layers, most.*layers, point, bytes));
  }
  return absl::OkStatus();
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
  best_ = PolicyCandidate{.policy = grid_.Make(kind, point),
                          .words = grid_.Words(kind, point),
                          .arena_bytes = bytes.device,
                          .host_arena_bytes = bytes.host,
                          .weighed_seconds = Weighed(score)};
}

absl::Status Search::Try(const Kind& kind) {
  if (result_.ops > kMaxSearchOps) return absl::OkStatus();
  Outcome& outcome = outcomes_.emplace_back(Outcome{.kind = kind});
  saved_bytes_.clear();
  PENSTOCK_ASSIGN_OR_RETURN(outcome.bytes, LeastBytes(kind, {}));
  if (outcome.bytes.device > input_.device_bytes) return absl::OkStatus();
  for (int64_t state_blocks : grid_.StateBlocks(kind.order)) {
    for (int64_t master_blocks : grid_.MasterBlocks(kind.order, state_blocks)) {
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
  const Point most = grid_.WithMostSaved(kind, least);
  PENSTOCK_ASSIGN_OR_RETURN(Score score, MostSaved(kind, most));
  const double seconds = Weighed(score);
  const bool loses = best_.has_value() && seconds >= best_->weighed_seconds;
  // What loses is told only of where it loses least.
  if (loses && outcome.verdict != Verdict::kUnfit && seconds >= outcome.seconds) return Fits::kYes;
  PENSTOCK_ASSIGN_OR_RETURN(Bytes bytes, LeastBytes(kind, least));
  if (bytes.device > input_.device_bytes) return Fits::kNo;
  if (loses) {
    Note(outcome, Verdict::kBound, most, seconds);
    return Fits::kYes;
  }
  Point point = least;
  PENSTOCK_RETURN_IF_ERROR(SaveWhatFits(kind, point, bytes));
  if (bytes.host > input_.host_bytes) return Fits::kYes;
  if (point.most_layers < most.most_layers || point.first_most_layers < most.first_most_layers) {
    PENSTOCK_ASSIGN_OR_RETURN(score, ScoreOf(grid_.Make(kind, point), cautious_));
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
                            " of device memory (", grid_.Words(least->kind, {}), "), ",
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
    if (i == best_kind_ || grid_.Words(outcome.kind, outcome.point) == best_->words) continue;
    const Outcome*& kept = by_order[{outcome.kind.order, outcome.kind.micro_batches_per_round}];
    if (kept == nullptr || precedes(outcome, *kept)) kept = &outcome;
  }
  std::vector<const Outcome*> sorted;
  for (const auto& [order, outcome] : by_order) sorted.push_back(outcome);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const Outcome* a, const Outcome* b) { return precedes(*a, *b); });
  for (const Outcome* outcome : sorted) {
    result_.runners_up.push_back({grid_.Words(outcome->kind, outcome->point), Why(*outcome)});
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
