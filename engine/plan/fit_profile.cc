#include "engine/plan/fit_profile.h"

#include <algorithm>
#include <array>

namespace penstock {
namespace {

// Of the compute lane.
constexpr double MachineProfile::*kRates[] = {
    &MachineProfile::matmul_flops,
    &MachineProfile::matmul_bytes,
    &MachineProfile::attention_forward_flops,
    &MachineProfile::attention_backward_flops,
    &MachineProfile::long_attention_forward_flops,
    &MachineProfile::long_attention_backward_flops,
    &MachineProfile::device_bytes,
};
constexpr size_t kRateCount = std::size(kRates);

// Shorter ops say more of the clock than of the machine.
constexpr double kShortestSeconds = 20e-6;
// Of the weight of all measured ops: how much what was known before counts.
constexpr double kPriorWeight = 1e-8;
// Of a copy's rate alone, beside another.
constexpr double kLeastShare = 0.1;
constexpr int kSweeps = 100'000;
// So many times faster than 1 that its part of a duration is lost, and not so large a number that 1
// would be lost in sums with it.
constexpr double kFree = 1e15;

MachineProfile OnlyRate(double MachineProfile::*rate) {
  MachineProfile profile;
  for (double MachineProfile::*other : kRates) {
    profile.*other = kFree;
  }
  profile.copy_in_bytes = profile.copy_out_bytes = profile.adamw_parameters = kFree;
  profile.op_seconds = 0;
  profile.*rate = 1;
  return profile;
}

// The x that are not negative for which row * x is nearest to 1, of rows that are scaled to that.
template <size_t kUnknowns>
class LeastSquares {
 public:
  using Row = std::array<double, kUnknowns>;

  void Add(const Row& row, double weight) {
    for (size_t i = 0; i < kUnknowns; ++i) {
      targets_[i] += weight * row[i];
      for (size_t j = 0; j < kUnknowns; ++j) products_[i][j] += weight * row[i] * row[j];
    }
  }
  // Each x is known to be near this one. `rows`: that have been added, or will be.
  void AddKnown(const Row& x, double rows) {
    for (size_t i = 0; i < kUnknowns; ++i) {
      Row known = {};
      known[i] = 1 / x[i];
      Add(known, kPriorWeight * std::max(1.0, rows));
    }
  }

  // Cyclic coordinate descent from x: each in turn takes its best value that is not less than
  // least(i, x).
  template <typename Least>
  Row Solve(Row x, const Least& least) const {
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      for (size_t i = 0; i < kUnknowns; ++i) {
        if (products_[i][i] <= 0) continue;
        double residual = targets_[i];
        for (size_t j = 0; j < kUnknowns; ++j) {
          if (j != i) residual -= products_[i][j] * x[j];
        }
        x[i] = std::max(least(i, x), residual / products_[i][i]);
      }
    }
    return x;
  }

 private:
  std::array<Row, kUnknowns> products_ = {};
  Row targets_ = {};
};

using RateSums = LeastSquares<kRateCount>;

double Duration(const SimulatedOp& op) { return op.end - op.start; }

void AddRun(const MeasuredProgram& run, double op_seconds, RateSums& sums) {
  std::array<std::vector<double>, kRateCount> counts;
  for (size_t rate = 0; rate < kRateCount; ++rate) {
    counts[rate] = OpSeconds(run.program, run.spec, run.layout, run.cost, OnlyRate(kRates[rate]));
  }
  for (size_t op = 0; op < run.timeline.size(); ++op) {
    const double seconds = Duration(run.timeline[op]) - op_seconds;
    if (run.program.ops[op].lane != Lane::kCompute || seconds < kShortestSeconds) continue;
    RateSums::Row row;
    for (size_t rate = 0; rate < kRateCount; ++rate) row[rate] = counts[rate][op] / seconds;
    sums.Add(row, 1);
  }
}

constexpr size_t kMatmul = 0;
static_assert(kRates[kMatmul] == &MachineProfile::matmul_flops);

// Attention's products have no units of their own: what says that it is faster than large products
// is a scatter of these, of which attention is a small part.
constexpr bool IsAttention(double MachineProfile::*rate) {
  return rate == &MachineProfile::attention_forward_flops ||
         rate == &MachineProfile::attention_backward_flops ||
         rate == &MachineProfile::long_attention_forward_flops ||
         rate == &MachineProfile::long_attention_backward_flops;
}

// The ops of a lane that moves data, of all runs.
struct LaneOp {
  double work = 0;                             // what OpSeconds() says at a rate of 1
  double seconds = 0;                          // measured
  std::array<double, kLaneCount> beside = {};  // of them, while ops of another lane ran
  double copied = 0;                           // bytes, by those meanwhile

  double Beside(Lane lane) const { return beside[static_cast<size_t>(lane)]; }
  double BesideCopies() const { return std::max(Beside(Lane::kCopyIn), Beside(Lane::kCopyOut)); }
};

double Overlap(const SimulatedOp& a, const SimulatedOp& b) {
  return std::max(0.0, std::min(a.end, b.end) - std::max(a.start, b.start));
}

// `rate`: of the lane. Ops of a lane follow each other, so their overlaps add up.
std::vector<LaneOp> OpsOf(std::span<const MeasuredProgram> runs, Lane lane,
                          double MachineProfile::*rate, double op_seconds) {
  std::vector<LaneOp> ops;
  for (const MeasuredProgram& run : runs) {
    const std::vector<double> work =
        OpSeconds(run.program, run.spec, run.layout, run.cost, OnlyRate(rate));
    const std::vector<double> in = OpSeconds(run.program, run.spec, run.layout, run.cost,
                                             OnlyRate(&MachineProfile::copy_in_bytes));
    const std::vector<double> out = OpSeconds(run.program, run.spec, run.layout, run.cost,
                                              OnlyRate(&MachineProfile::copy_out_bytes));
    std::array<std::vector<size_t>, kLaneCount> ops_by_lane;
    for (size_t i = 0; i < run.timeline.size(); ++i) {
      ops_by_lane[static_cast<size_t>(run.program.ops[i].lane)].push_back(i);
    }
    // Of each other lane, its first op that has not ended when the op at hand begins: a step may
    // have many thousands of ops, so each lane is gone through once.
    std::array<size_t, kLaneCount> first = {};
    for (size_t i : ops_by_lane[static_cast<size_t>(lane)]) {
      const SimulatedOp& time = run.timeline[i];
      LaneOp op = {work[i], Duration(time) - op_seconds};
      if (op.seconds < kShortestSeconds || op.work < 1) continue;
      for (Lane other : {Lane::kCopyIn, Lane::kCopyOut, Lane::kHost}) {
        if (other == lane) continue;
        const std::vector<size_t>& theirs = ops_by_lane[static_cast<size_t>(other)];
        size_t& at = first[static_cast<size_t>(other)];
        while (at < theirs.size() && run.timeline[theirs[at]].end <= time.start) ++at;
        double beside = 0;
        for (size_t k = at; k < theirs.size(); ++k) {
          const size_t j = theirs[k];
          if (run.timeline[j].start >= time.end) break;
          const double shared = Overlap(time, run.timeline[j]);
          if (shared <= 0) continue;
          beside += shared;
          op.copied += (in[j] + out[j]) * shared / Duration(run.timeline[j]);
        }
        op.beside[static_cast<size_t>(other)] = std::min(op.seconds, beside);
      }
      ops.push_back(op);
    }
  }
  return ops;
}

// A copy's rate, and its shares beside a copy in the other direction and beside AdamW.
struct CopyRates {
  double &alone, &share_beside_other, &share_beside_adamw;
};

// work = alone t0 + beside the other t1 + beside AdamW t2, each t a part of the op's seconds, by
// relative errors. While both run an op counts as beside AdamW.
void FitCopies(std::span<const LaneOp> ops, Lane other, CopyRates rates) {
  using Sums = LeastSquares<3>;
  Sums sums;
  for (const LaneOp& op : ops) {
    const double adamw = op.Beside(Lane::kHost);
    const double beside = std::min(op.Beside(other), op.seconds - adamw);
    sums.Add({(op.seconds - adamw - beside) / op.work, beside / op.work, adamw / op.work}, 1);
  }
  const Sums::Row known = {rates.alone, rates.alone * rates.share_beside_other,
                           rates.alone * rates.share_beside_adamw};
  sums.AddKnown(known, static_cast<double>(ops.size()));
  const Sums::Row x = sums.Solve(known, [](size_t, const Sums::Row&) { return 0.0; });
  if (!(x[0] > 0)) return;
  rates.alone = x[0];
  rates.share_beside_other = std::clamp(x[1] / x[0], kLeastShare, 1.0);
  rates.share_beside_adamw = std::clamp(x[2] / x[0], kLeastShare, 1.0);
}

// Ops that ran beside copies for less than this share of their time ran alone, beside them for more
// than the other ran under contention.
constexpr double kAlone = 0.05, kContended = 0.5;

void FitAdamw(std::span<const LaneOp> ops, MachineProfile& fitted) {
  const double bound = fitted.host_bytes / fitted.adamw_parameters;
  double work = 0, seconds = 0;
  for (const LaneOp& op : ops) {
    if (op.BesideCopies() > kAlone * op.seconds) continue;
    work += op.work;
    seconds += op.seconds;
  }
  if (seconds > 0) fitted.adamw_parameters = work / seconds;
  double bytes = 0, contended = 0;
  for (const LaneOp& op : ops) {
    if (op.BesideCopies() < kContended * op.seconds) continue;
    const double alone = seconds > 0 ? op.seconds - op.BesideCopies() : 0;
    bytes += kAdamwHostBytes * (op.work - alone * fitted.adamw_parameters) + op.copied;
    contended += op.seconds - alone;
  }
  fitted.host_bytes = contended > 0 ? bytes / contended : bound * fitted.adamw_parameters;
  // Beside copies only: alone it is not slower than beside them.
  if (seconds == 0 && contended > 0) {
    double most = 0;
    for (const LaneOp& op : ops) most = std::max(most, op.work / op.seconds);
    fitted.adamw_parameters = most;
  }
}

}  // namespace

MachineProfile FitProfile(std::span<const MeasuredProgram> runs, const MachineProfile& prior) {
  RateSums sums;
  double ops = 0;
  for (const MeasuredProgram& run : runs) {
    AddRun(run, prior.op_seconds, sums);
    ops += static_cast<double>(run.timeline.size());
  }
  RateSums::Row known;
  for (size_t rate = 0; rate < kRateCount; ++rate) known[rate] = 1 / (prior.*kRates[rate]);
  sums.AddKnown(known, ops);
  const RateSums::Row reciprocals = sums.Solve(known, [](size_t i, const RateSums::Row& x) {
    return IsAttention(kRates[i]) ? x[kMatmul] : 0.0;
  });
  MachineProfile fitted = prior;
  for (size_t rate = 0; rate < kRateCount; ++rate) {
    // What seems to cost nothing is far faster than it was thought to be.
    constexpr double kFastest = 100;
    const double most = kFastest * (prior.*kRates[rate]);
    fitted.*kRates[rate] = reciprocals[rate] > 1 / most ? 1 / reciprocals[rate] : most;
  }
  FitCopies(
      OpsOf(runs, Lane::kCopyIn, &MachineProfile::copy_in_bytes, prior.op_seconds), Lane::kCopyOut,
      {fitted.copy_in_bytes, fitted.copy_in_share_beside_out, fitted.copy_in_share_beside_adamw});
  FitCopies(
      OpsOf(runs, Lane::kCopyOut, &MachineProfile::copy_out_bytes, prior.op_seconds), Lane::kCopyIn,
      {fitted.copy_out_bytes, fitted.copy_out_share_beside_in, fitted.copy_out_share_beside_adamw});
  FitAdamw(OpsOf(runs, Lane::kHost, &MachineProfile::adamw_parameters, prior.op_seconds), fitted);
  return fitted;
}

}  // namespace penstock
