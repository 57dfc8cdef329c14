// How far computed values are from reference values, in the two measures of our bounds.
#pragma once

#include <ostream>
#include <span>

namespace penstock {

struct Difference {
  double by_norm = 0;  // ||got - want|| / ||want||, Euclidean
  double by_peak = 0;  // max|got - want| / max|want|

  double worst() const { return by_norm > by_peak ? by_norm : by_peak; }
};

// Infinite in both measures when the sizes differ or a value on either side is not finite. Where
// all of `want` is zero, so must all of `got` be: 0 if it is, infinite otherwise.
Difference Compare(std::span<const float> got, std::span<const float> want);

std::ostream& operator<<(std::ostream& out, const Difference& difference);

}  // namespace penstock
