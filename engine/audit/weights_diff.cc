#include "engine/audit/weights_diff.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"

namespace penstock {
namespace {

constexpr int64_t kWindow = int64_t{1} << 18;  // elements
// Training moves tensors of one kind alike: of some billions of parameters and any number of steps
// the largest of a kind stays within a few times the median.
constexpr double kFarFactor = 8;
// Fewer are no group to be far from.
constexpr size_t kSmallestGroup = 4;

struct Windows {
  std::vector<float> before, after;
  std::vector<std::byte> raw;
};

// What is summed of a tensor.
struct Sums {
  double before = 0, after = 0, change = 0;  // of squares
};

void AddWindow(std::span<const float> before, std::span<const float> after, TensorChange& change,
               Sums& sums) {
  for (size_t i = 0; i < before.size(); ++i) {
    const double a = before[i], b = after[i];
    const bool a_finite = std::isfinite(a), b_finite = std::isfinite(b);
    change.not_finite_before += !a_finite;
    change.not_finite_after += !b_finite;
    change.zeros_after += b == 0;
    if (!a_finite || !b_finite) {
      change.changed += !(a == b || (std::isnan(a) && std::isnan(b)));
      continue;
    }
    const double d = b - a;
    change.changed += d != 0;
    change.max_abs_change = std::max(change.max_abs_change, std::abs(d));
    sums.before += a * a;
    sums.after += b * b;
    sums.change += d * d;
  }
}

absl::Status Compare(const WeightsDirectory& before, const StoredWeights& a,
                     const WeightsDirectory& after, const StoredWeights& b, Windows& windows,
                     TensorChange& change) {
  Sums sums;
  for (int64_t first = 0; first < a.elements; first += kWindow) {
    const size_t count = static_cast<size_t>(std::min(kWindow, a.elements - first));
    windows.before.resize(count);
    windows.after.resize(count);
    PENSTOCK_RETURN_IF_ERROR(before.Read(a, first, windows.before, windows.raw));
    PENSTOCK_RETURN_IF_ERROR(after.Read(b, first, windows.after, windows.raw));
    AddWindow(windows.before, windows.after, change, sums);
  }
  change.norm_before = std::sqrt(sums.before);
  change.norm_after = std::sqrt(sums.after);
  change.change_norm = std::sqrt(sums.change);
  return absl::OkStatus();
}

// "model.layers.*.mlp.up_proj.weight": what the tensors of all layers share.
std::string KindOf(const std::string& name) {
  std::string kind;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool number = std::isdigit(static_cast<unsigned char>(name[i])) != 0;
    const bool begins = i == 0 || name[i - 1] == '.';
    if (!number || !begins) {
      kind += name[i];
      continue;
    }
    size_t end = i;
    while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end])) != 0) ++end;
    const bool whole = end == name.size() || name[end] == '.';
    kind += whole ? "*" : name.substr(i, end - i);
    i = end - 1;
  }
  return kind;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Of the changes of each kind; those of a small one are compared with all.
std::map<std::string, double> MediansByKind(std::span<const TensorChange> tensors) {
  std::map<std::string, std::vector<double>> changes;
  std::vector<double> all;
  for (const TensorChange& tensor : tensors) {
    const double change = tensor.relative_change();
    if (tensor.changed == 0 || !std::isfinite(change)) continue;
    changes[KindOf(tensor.name)].push_back(change);
    all.push_back(change);
  }
  std::map<std::string, double> medians;
  for (const auto& [kind, values] : changes) {
    const std::vector<double>& group = values.size() >= kSmallestGroup ? values : all;
    if (group.size() >= kSmallestGroup) medians[kind] = Median(group);
  }
  return medians;
}

}  // namespace

double TensorChange::relative_change() const {
  if (change_norm == 0) return 0;
  return norm_before > 0 ? change_norm / norm_before : std::numeric_limits<double>::infinity();
}

const char* ToString(AnomalyKind kind) {
  switch (kind) {
    case AnomalyKind::kNotFinite:
      return "not_finite";
    case AnomalyKind::kAllZero:
      return "all_zero";
    case AnomalyKind::kUnchanged:
      return "unchanged";
    case AnomalyKind::kFarLarger:
      return "far_larger";
  }
  return "?";
}

std::vector<Anomaly> FindAnomalies(std::span<const TensorChange> tensors) {
  const auto changed = static_cast<size_t>(std::count_if(
      tensors.begin(), tensors.end(), [](const TensorChange& t) { return t.changed > 0; }));
  const bool most_changed = 2 * changed > tensors.size();
  const std::map<std::string, double> medians = MediansByKind(tensors);
  std::vector<Anomaly> anomalies;
  for (const TensorChange& tensor : tensors) {
    const auto add = [&](AnomalyKind kind, std::string text) {
      anomalies.push_back({.kind = kind, .tensor = tensor.name, .text = std::move(text)});
    };
    if (tensor.not_finite_after > 0) {
      add(AnomalyKind::kNotFinite, absl::StrCat(tensor.not_finite_after, " of ", tensor.elements,
                                                " elements are NaN or infinite; ",
                                                tensor.not_finite_before, " were before"));
    }
    if (tensor.elements > 0 && tensor.zeros_after == tensor.elements) {
      add(AnomalyKind::kAllZero, absl::StrCat("all ", tensor.elements, " elements are 0"));
    }
    if (tensor.elements > 0 && tensor.changed == 0 && most_changed) {
      add(AnomalyKind::kUnchanged, absl::StrCat("no element changed, while ", changed, " of ",
                                                tensors.size(), " tensors did"));
    }
    const auto median = medians.find(KindOf(tensor.name));
    if (median == medians.end() || tensor.relative_change() <= kFarFactor * median->second) {
      continue;
    }
    add(AnomalyKind::kFarLarger,
        absl::StrFormat("changed by %.3g of its norm, %.3g times the median of %s",
                        tensor.relative_change(), tensor.relative_change() / median->second,
                        median->first));
  }
  return anomalies;
}

absl::StatusOr<WeightsDiff> DiffWeights(const std::string& before, const std::string& after,
                                        ThreadPool& pool) {
  PENSTOCK_ASSIGN_OR_RETURN(const WeightsDirectory a, WeightsDirectory::Open(before));
  PENSTOCK_ASSIGN_OR_RETURN(const WeightsDirectory b, WeightsDirectory::Open(after));
  std::map<std::string, const StoredWeights*> rest;
  for (const StoredWeights& tensor : b.tensors()) rest[tensor.name] = &tensor;
  WeightsDiff diff;
  std::vector<std::pair<const StoredWeights*, const StoredWeights*>> pairs;
  for (const StoredWeights& tensor : a.tensors()) {
    const auto found = rest.find(tensor.name);
    if (found == rest.end()) {
      diff.only_before.push_back(tensor.name);
      continue;
    }
    if (found->second->shape == tensor.shape) {
      pairs.emplace_back(&tensor, found->second);
      diff.tensors.push_back(
          {.name = tensor.name, .shape = tensor.shape, .elements = tensor.elements});
    } else {
      diff.reshaped.push_back(tensor.name);
    }
    rest.erase(found);
  }
  for (const auto& [name, unused] : rest) diff.only_after.push_back(name);

  std::vector<absl::Status> results(pairs.size());
  std::vector<Windows> windows(static_cast<size_t>(pool.size()));
  pool.ParallelFor(static_cast<int64_t>(pairs.size()), [&](int64_t task, int worker) {
    const auto& [x, y] = pairs[task];
    results[task] = Compare(a, *x, b, *y, windows[worker], diff.tensors[task]);
  });
  for (const absl::Status& result : results) PENSTOCK_RETURN_IF_ERROR(result);
  for (const TensorChange& tensor : diff.tensors) {
    diff.norm_before = std::hypot(diff.norm_before, tensor.norm_before);
    diff.norm_after = std::hypot(diff.norm_after, tensor.norm_after);
    diff.change_norm = std::hypot(diff.change_norm, tensor.change_norm);
  }
  diff.anomalies = FindAnomalies(diff.tensors);
  return diff;
}

}  // namespace penstock
