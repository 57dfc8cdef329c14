#include "engine/train/untrained_rows.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/memory/planes.h"
#include "engine/model/layout.h"

namespace penstock {
namespace {

std::vector<int32_t> UsedIds(const Dataset& data, int64_t vocab_size) {
  std::vector<bool> used(vocab_size);
  for (int64_t d = 0; d < data.documents(); ++d) {
    for (const int32_t id : data.Ids(d)) used[id] = true;
  }
  std::vector<int32_t> ids;
  for (int64_t id = 0; id < vocab_size; ++id) {
    if (used[id]) ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

}  // namespace

UntrainedRows FindUntrainedRows(const ModelSpec& spec, const HostStore& store,
                                const Dataset& data) {
  const BlockLayout& block = store.layout().blocks.front();
  const int64_t width = spec.hidden_size;
  const auto table = store.block(block.block).hi.subspan(block.OffsetOf(Role::kEmbedding));
  const std::vector<int32_t> ids = UsedIds(data, spec.vocab_size);
  std::vector<double> norms;
  for (const int32_t id : ids) {
    double sum = 0;
    for (const uint16_t value : table.subspan(id * width, width)) {
      sum += static_cast<double>(Join(value, 0)) * Join(value, 0);
    }
    norms.push_back(std::sqrt(sum));
  }
  UntrainedRows rows;
  if (norms.empty()) return rows;
  std::vector<double> sorted = norms;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  rows.median_norm = *middle;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!(norms[i] < kUntrainedPart * rows.median_norm)) continue;
    ++rows.count;
    if (rows.first.size() < UntrainedRows::kMaxListed) rows.first.push_back(ids[i]);
  }
  return rows;
}

std::string ToText(const UntrainedRows& rows) {
  if (rows.count == 0) return "";
  return absl::StrFormat(
      "warning: the data use %d token(s) whose rows of the embedding are next to nothing (the "
      "median norm is %.3g), ids %s%s: the model was never trained on them; take a model that was, "
      "or a chat template without them",
      rows.count, rows.median_norm, absl::StrJoin(rows.first, ", "),
      rows.count > static_cast<int64_t>(rows.first.size()) ? ", ..." : "");
}

}  // namespace penstock
