#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/memory/host_store.h"
#include "engine/model/model_spec.h"

namespace penstock {

// Ids that the data use and whose rows of the embedding are next to nothing: base models come with
// special tokens that nobody has trained, and an instruction format that is made of them learns
// slowly or not at all.
struct UntrainedRows {
  int64_t count = 0;
  std::vector<int32_t> first = {};  // by rising id, at most kMaxListed
  double median_norm = 0;           // of the rows of the ids that the data use
  static constexpr size_t kMaxListed = 10;
};

// A row counts if its norm is less than this part of the median.
inline constexpr double kUntrainedPart = 0.01;

// REQUIRES: the store holds the weights; ids of `data` are less than spec.vocab_size.
UntrainedRows FindUntrainedRows(const ModelSpec& spec, const HostStore& store, const Dataset& data);

// For people; "" if there are none.
std::string ToText(const UntrainedRows& rows);

}  // namespace penstock
