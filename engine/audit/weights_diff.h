// How far the weights of one directory are from those of another, tensor by tensor, and what of
// that looks wrong: a broken layer, a part that was swapped, training that did not reach one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/audit/weights_directory.h"
#include "engine/base/thread_pool.h"

namespace penstock {

// Norms are Euclidean, summed in fp64 over the elements that are finite on both sides.
struct TensorChange {
  std::string name;
  std::vector<int64_t> shape;
  int64_t elements = 0;
  int64_t changed = 0;  // elements
  int64_t not_finite_before = 0, not_finite_after = 0;
  int64_t zeros_after = 0;
  double norm_before = 0, norm_after = 0;
  double change_norm = 0;     // of the difference
  double max_abs_change = 0;  // of an element

  // change_norm / norm_before; infinite for a change from zero.
  double relative_change() const;
};

enum class AnomalyKind : uint8_t {
  kNotFinite,  // NaN or infinite afterwards
  kAllZero,    // every element, afterwards
  kUnchanged,  // while most tensors changed
  kFarLarger,  // change than that of others of its kind
};
const char* ToString(AnomalyKind kind);  // "not_finite", "all_zero", "unchanged", "far_larger"

struct Anomaly {
  AnomalyKind kind = AnomalyKind::kNotFinite;
  std::string tensor;
  std::string text;  // with the numbers, for people
};

struct WeightsDiff {
  std::vector<TensorChange> tensors;  // by name; those with one shape on both sides
  std::vector<std::string> only_before, only_after, reshaped;
  std::vector<Anomaly> anomalies;
  double norm_before = 0, norm_after = 0, change_norm = 0;  // of all `tensors`
};

// Memory: a few windows a thread, whatever the size of the tensors. Errors of
// WeightsDirectory::Open, and IO_ERROR.
absl::StatusOr<WeightsDiff> DiffWeights(const std::string& before, const std::string& after,
                                        ThreadPool& pool);

// In the order of the tensors.
std::vector<Anomaly> FindAnomalies(std::span<const TensorChange> tensors);

}  // namespace penstock
