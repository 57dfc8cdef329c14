// The table that holds the CPU ops to the references. An op adds a row: a function that runs it
// on a context and returns its outputs, and one that returns what they should be. parity_test.cc
// runs each row with 1, 2 and 3 threads, wants the same bits from all, and compares.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "engine/kernels/context.h"
#include "tests/engine/kernels/reference.h"

namespace penstock {

using Floats = std::vector<float>;

struct ParityCase {
  std::string name;  // of letters, digits and _
  // Outputs must start as Poisoned() wherever the op has to write.
  std::function<std::vector<Floats>(const cpu::Context&)> run;
  std::function<std::vector<reference::Doubles>()> expected;
  // Largest error of an output element, relative to the largest element of that output, or to 1
  // if that is larger: the inputs are of order 1, and what they cancel to carries their error.
  double tolerance;
};

// GoogleTest names a failed case with it.
inline void PrintTo(const ParityCase& parity_case, std::ostream* out) { *out << parity_case.name; }

std::vector<ParityCase> LinearCases();
std::vector<ParityCase> NormCases();
std::vector<ParityCase> PointwiseCases();  // rope, swiglu, embedding, cross-entropy
std::vector<ParityCase> AttentionCases();

// NaN throughout: what an op forgets to write shows.
Floats Poisoned(int64_t count);
// Normally distributed, the same for a seed on every machine.
Floats Random(int64_t count, uint32_t seed, float deviation = 1.0f);
reference::Doubles ToDoubles(const Floats& values);

// |actual - expected| <= tolerance * the largest expected magnitude, or * 1 if that is larger.
void ExpectClose(const Floats& actual, const reference::Doubles& expected, double tolerance,
                 const std::string& what);
bool SameBits(const Floats& a, const Floats& b);

// Rows of a [rows, stride] view, columns [begin, begin + count), without the rest.
Floats Columns(const Floats& view, int64_t rows, int64_t stride, int64_t begin, int64_t count);

}  // namespace penstock
