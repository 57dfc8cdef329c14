#include "tests/engine/nn/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace penstock {
namespace {

double Ratio(double error, double value) {
  if (value > 0) return error / value;
  return error == 0 ? 0 : std::numeric_limits<double>::infinity();
}

}  // namespace

Difference Compare(std::span<const float> got, std::span<const float> want) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (got.size() != want.size()) return {kInfinity, kInfinity};
  double error_squares = 0, want_squares = 0, error_peak = 0, want_peak = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i]) || !std::isfinite(want[i])) return {kInfinity, kInfinity};
    const double error = std::abs(double{got[i]} - want[i]);
    const double value = std::abs(double{want[i]});
    error_squares += error * error;
    want_squares += value * value;
    error_peak = std::max(error_peak, error);
    want_peak = std::max(want_peak, value);
  }
  return {Ratio(std::sqrt(error_squares), std::sqrt(want_squares)), Ratio(error_peak, want_peak)};
}

std::ostream& operator<<(std::ostream& out, const Difference& difference) {
  return out << "by norm " << difference.by_norm << ", by peak " << difference.by_peak;
}

}  // namespace penstock
