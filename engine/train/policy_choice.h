// The policy of a job's steps: what changes rounding, which is fixed by the model and the batch,
// and the rest, which a search (engine/plan/search.h) chooses inside the memory there is.
//
// Of what the search chooses only the rounds can change a bit, and only in a model whose head is
// tied to its embedding. On a given machine a job has one answer, and a machine with exactly the
// bytes of that answer gives it again.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/plan/search.h"

namespace penstock {

struct PolicyChoiceArgs {
  const TrainConfig& config;
  const ModelSpec& spec;
  const ModelLayout& layout;
  ProgramShape shape;        // of a full step, without a budget
  int threads = 1;           // of the CPU backend
  int64_t device_bytes = 0;  // for the device arena; on the CPU, where it is the host's, likewise
  int64_t host_bytes = 0;    // for saved tensors on the host; on the CPU not used
  SearchEffort& effort;
};

// Errors as ChoosePolicy() of engine/plan/search.h.
absl::StatusOr<SearchResult> ChoosePolicyOf(const PolicyChoiceArgs& args);

// The profile that the job's step is predicted with.
NamedProfile ProfileOf(const TrainConfig& config, int threads);

// What of the plan changes rounding, in words: another plan with the same gives the same bits.
std::string RoundingWords(const TrainConfig& config, const ModelSpec& spec, const Policy& policy);

}  // namespace penstock
