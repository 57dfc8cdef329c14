// The reference values under tests/testdata/reference, as make_reference.py there wrote them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

struct ReferenceCase {
  std::string name;
  std::string model_directory;  // the Hugging Face directory
  std::string config_json;
  // All documents, one after the other; labels are those of each position, -1 for none.
  std::vector<int32_t> ids, position_ids, labels;
  std::vector<int32_t> document_starts;                            // first 0, last ids.size()
  std::map<std::string, std::vector<float>, std::less<>> weights;  // by parameter name
  // "loss", "logits", "grad_norm" and, by parameter name, "grad.", "updated.", "wide.", "wide2.".
  std::map<std::string, std::vector<float>, std::less<>> values;

  double learning_rate = 0, beta1 = 0, beta2 = 0, weight_decay = 0, max_norm = 0;
  double epsilon = 0;       // of "updated."
  double wide_epsilon = 0;  // of "wide." and "wide2."
  int64_t steps = 0;        // 2 if there is "wide2."

  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
  // REQUIRES: there is such a value.
  const std::vector<float>& value(std::string_view name) const;
};

// Names of all cases.
std::vector<std::string> ReferenceCaseNames();

// NotFound if PENSTOCK_TESTDATA, which ctest sets, is not in the environment.
absl::StatusOr<ReferenceCase> LoadReferenceCase(const std::string& name);

}  // namespace penstock
