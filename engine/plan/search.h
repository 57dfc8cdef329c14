// Which policy makes a step fastest inside the memory there is: a pruned enumeration, each
// candidate scored by Simulate on a machine's rates, with a host somewhat slower than thought.
//
// The candidates
//   order   rounds of one micro-batch with all weights and gradient sums on the device; rounds of
//           1, 2, 4, 8 (fewer where layers are many) with the sums there and weights streamed; 2 to
//           8 rounds with weights streamed and sums that wait on the host between them; one round,
//           weights streamed or held
//   first   the first round as the others, or with more micro-batches, of which less is saved
//   saving  each layer's input or attention side, on the device or on the host (in one
//           round also of the first half of the layers, or all inputs and the attention sides of an
//           eighth, a quarter or half of the layers); and everything for the last k layers
//   updates under the next forward pass, weights and moments at once or moments later, by the time
//           that the host has
//   state   optimizer state of the first j blocks on the device, j from a fixed list; where all
//           gradient sums are there too, and in one round of few micro-batches, master weights of
//           the next i, whose moments come for updates
// Of these k is not enumerated, nor is that of the first round: more saved is never slower, so it
// is the largest that fits. What
// could not win even with everything saved is not looked at further. Neither cuts off the best
// candidate: it is that of the whole grid, which does not depend on the budgets. So more memory
// is never slower, and a budget of exactly the bytes of an answer gives that answer again.
//
// Steps of many micro-batches are scored by a few that stand for all; bytes are exact.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/layout.h"
#include "engine/plan/machine_profile.h"
#include "engine/plan/policy.h"
#include "engine/plan/rounding_choice.h"
#include "engine/plan/step_program.h"
#include "engine/plan/train_program.h"

namespace penstock {

// Once so many ops have been built, what has not been looked at is left out.
inline constexpr int64_t kMaxSearchOps = 4'000'000;

// Of several searches for one answer, each for a job a little changed: what they have built, and
// how much that may be before no other change is tried.
struct SearchEffort {
  int64_t most_ops;
  int64_t ops = 0;
  bool Spent() const { return ops >= most_ops; }
};

// What a second of the host's work weighs against one of the step when candidates are compared.
inline constexpr double kHostWeight = 0.005;

enum class SearchSpace : uint8_t {
  kEverything,
  // One round, streamed, saved tensors on the device, updates at the end of the step: where the
  // device's memory is the host's, nothing else gains.
  kSavingOnly,
};

struct SearchInput {
  const ModelSpec& spec;
  const ModelLayout& layout;
  ProgramShape shape;  // of a full step; its budget is not looked at
  // What changes rounding is the caller's: chunk rows and gradient type. The slots are, too, and
  // whether updates go with backward; otherwise the search says when they run.
  Policy base;
  int64_t host_sums_bytes = 0;  // what the host store takes for sums that wait between rounds
  // Only policies with these rounds: where rounds change rounding and a run goes on.
  std::optional<RoundingChoice> kept_rounds = {};
  SaveLevel save_at_most = SaveLevel::kAll;
  SearchSpace space = SearchSpace::kEverything;
  double mean_document_tokens = 0;
  MachineProfile machine;
  int64_t device_bytes = INT64_MAX;  // for a program's device arena
  int64_t host_bytes = INT64_MAX;    // for its host arena
  SearchEffort* effort = nullptr;    // counts this search, if given
};

struct PolicyCandidate {
  Policy policy;
  std::string words;        // how a step runs, for people
  int64_t arena_bytes = 0;  // likewise of the host
  int64_t host_arena_bytes = 0;
  double step_seconds = 0;
  // On a Cautious() machine, and kHostWeight of what the host's ops take there, each alone: by this
  // it was chosen.
  double weighed_seconds = 0;
  std::array<double, kLaneCount> busy_seconds = {};
  std::array<double, kLaneCount> exposed_seconds = {};  // as in Simulation
};

// Why a kind of policy was not chosen.
struct RunnerUp {
  std::string words;
  std::string why;  // "4.1% slower", "needs 3.2 GiB more of device memory"
};

struct SearchResult {
  PolicyCandidate best;
  std::vector<RunnerUp> runners_up;  // one of a kind: the fastest that fit, then those that did not
  int64_t programs = 0, ops = 0;     // that were built for it
};

// ResourceExhausted / DEVICE_MEMORY_INSUFFICIENT with needed_bytes (the least of all candidates),
// usable_bytes and limit_source if none fits. Ends within kMaxSearchOps, whatever the input.
// REQUIRES: layers x micro-batches of the shape are at most 2^20.
absl::StatusOr<SearchResult> ChoosePolicy(const SearchInput& input);

// Hosts of one kind of machine differ, and what leans on them is exposed when they are slower, but
// gains nothing when they are faster than needed. Of two policies that are as fast on paper, the
// one that leans less on the host wins; of two that are as fast here as well, the one that gives it
// less to do.
MachineProfile Cautious(const MachineProfile& machine);

// "compute: busy 92% of the step", "AdamW on the host: 0.93 s exposed".
std::string BindingResource(const PolicyCandidate& candidate);

}  // namespace penstock
