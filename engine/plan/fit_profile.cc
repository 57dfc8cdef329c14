#include "engine/plan/fit_profile.h"

#include <algorithm>
#include <array>

namespace penstock {
namespace {

constexpr double MachineProfile::*kRates[] = {
    &MachineProfile::matmul_flops,
    &MachineProfile::attention_forward_flops,
    &MachineProfile::attention_backward_flops,
    &MachineProfile::long_attention_forward_flops,
    &MachineProfile::long_attention_backward_flops,
    &MachineProfile::device_bytes,
    &MachineProfile::copy_in_bytes,
    &MachineProfile::copy_out_bytes,
    &MachineProfile::adamw_parameters,
};
constexpr size_t kRateCount = std::size(kRates);
using Row = std::array<double, kRateCount>;

// Shorter ops say more of the clock than of the machine.
constexpr double kShortestSeconds = 20e-6;
// Of the weight of all measured ops: how much what was known before counts.
constexpr double kPriorWeight = 1e-8;
constexpr int kSweeps = 100'000;
// So many times faster than 1 that its part of a duration is lost, and not so large a number that 1
// would be lost in sums with it.
constexpr double kFree = 1e15;

MachineProfile OnlyRate(double MachineProfile::*rate) {
  MachineProfile profile;
  for (double MachineProfile::*other : kRates) {
    profile.*other = kFree;
  }
  profile.op_seconds = 0;
  profile.*rate = 1;
  return profile;
}

// Sums of squares and products of rows that are scaled to a measured value of 1 each.
struct Normal {
  std::array<Row, kRateCount> products = {};
  Row targets = {};

  void Add(const Row& row, double weight) {
    for (size_t i = 0; i < kRateCount; ++i) {
      targets[i] += weight * row[i];
      for (size_t j = 0; j < kRateCount; ++j) products[i][j] += weight * row[i] * row[j];
    }
  }
};

void AddRun(const MeasuredProgram& run, double op_seconds, Normal& normal) {
  std::array<std::vector<double>, kRateCount> counts;
  for (size_t rate = 0; rate < kRateCount; ++rate) {
    counts[rate] = OpSeconds(run.program, run.spec, run.layout, run.cost, OnlyRate(kRates[rate]));
  }
  for (size_t op = 0; op < run.op_seconds.size(); ++op) {
    const double seconds = run.op_seconds[op] - op_seconds;
    if (seconds < kShortestSeconds) continue;
    Row row;
    for (size_t rate = 0; rate < kRateCount; ++rate) row[rate] = counts[rate][op] / seconds;
    normal.Add(row, 1);
  }
}

// Cyclic coordinate descent: each reciprocal in turn takes its best value that is not negative.
Row Solve(const Normal& normal, Row x) {
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (size_t i = 0; i < kRateCount; ++i) {
      if (normal.products[i][i] <= 0) continue;
      double residual = normal.targets[i];
      for (size_t j = 0; j < kRateCount; ++j) {
        if (j != i) residual -= normal.products[i][j] * x[j];
      }
      x[i] = std::max(0.0, residual / normal.products[i][i]);
    }
  }
  return x;
}

}  // namespace

MachineProfile FitProfile(std::span<const MeasuredProgram> runs, const MachineProfile& prior) {
  Normal normal;
  double ops = 0;
  for (const MeasuredProgram& run : runs) {
    AddRun(run, prior.op_seconds, normal);
    ops += static_cast<double>(run.op_seconds.size());
  }
  Row start;
  for (size_t rate = 0; rate < kRateCount; ++rate) {
    start[rate] = 1 / (prior.*kRates[rate]);
    Row known = {};
    known[rate] = prior.*kRates[rate];  // times the reciprocal, that is 1
    normal.Add(known, kPriorWeight * std::max(1.0, ops));
  }
  const Row reciprocals = Solve(normal, start);
  MachineProfile fitted = prior;
  for (size_t rate = 0; rate < kRateCount; ++rate) {
    // What seems to cost nothing is far faster than it was thought to be.
    constexpr double kFastest = 100;
    const double most = kFastest * (prior.*kRates[rate]);
    fitted.*kRates[rate] = reciprocals[rate] > 1 / most ? 1 / reciprocals[rate] : most;
  }
  return fitted;
}

}  // namespace penstock
