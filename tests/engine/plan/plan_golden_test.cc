// The planner's answers for models and machines that people ask about, as text in golden/plans/,
// so that a change of the search or of a profile shows in review. To accept a change:
// PENSTOCK_UPDATE_GOLDEN=1 ctest -R plan_golden_test
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/geometry.h"
#include "engine/base/units.h"
#include "engine/plan/search.h"
#include "gtest/gtest.h"

namespace penstock {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;
// Of the host store, by parameter: planes, moments and bf16 gradients.
constexpr int64_t kStoreBytes = 14;

struct Golden {
  const char* geometry;
  const char* machine;
  int32_t micro_batches;
  int64_t micro_batch_tokens;
  int64_t device_gib = 0;  // a cap; 0: the card's, less 2
};

constexpr Golden kGolden[] = {
    {"qwen2.5-1.5b", "h100-80gb-pcie5", 8, 8192},
    {"qwen2.5-1.5b", "rtx4090-24gb-pcie4", 16, 4096},
    {"qwen2.5-7b", "h100-80gb-pcie5", 64, 8192},
    {"qwen2.5-7b", "h100-80gb-pcie5", 1, 16384},
    {"qwen2.5-7b", "h100-80gb-pcie5", 8, 8192, 24},
    {"qwen2.5-7b", "h100-80gb-pcie5", 1, 131072},
    {"qwen2.5-14b", "h100-80gb-pcie5", 12, 8192},
    {"qwen2.5-14b", "a100-80gb-pcie4", 8, 8192, 40},
    {"dense-120b", "h200-1.5tb", 2, 8192},
    {"llama3-405b", "gh200-96gb", 1, 1024},
    {"llama3-70b", "rtx5090-32gb-pcie5", 8, 2048, 16},
};

std::string Name(const Golden& golden) {
  return absl::StrCat(golden.geometry, "_", golden.machine, "_", golden.micro_batches, "x",
                      golden.micro_batch_tokens,
                      golden.device_gib > 0 ? absl::StrCat("_", golden.device_gib, "gib") : "",
                      ".txt");
}

std::string PlanText(const Golden& golden) {
  const ModelSpec spec = *FindGeometry(golden.geometry);
  const ModelLayout layout = MakeLayout(spec);
  const NamedProfile machine = *FindMachineProfile(golden.machine);
  const int64_t gib =
      golden.device_gib > 0 ? golden.device_gib : machine.device_memory_bytes / kGib - 2;
  const SearchInput input = {
      .spec = spec,
      .layout = layout,
      .shape = {.micro_batches = golden.micro_batches,
                .tokens_per_micro_batch = golden.micro_batch_tokens,
                .element_bytes = 2,
                .kernel_scratch_bytes = kGib / 4},
      .base = {.head_chunk_rows = 1024,
               .mlp_chunk_rows = golden.micro_batch_tokens > 8192 ? 8192 : 0,
               .gradient_type = GradientType::kBfloat16},
      .host_sums_bytes = 4 * layout.parameter_count,
      .mean_document_tokens = 4096,
      .machine = machine.rates,
      .device_bytes = gib * kGib,
      .host_bytes = std::max<int64_t>(
          0, machine.host_memory_bytes - 4 * kGib - kStoreBytes * layout.parameter_count)};
  const auto found = ChoosePolicy(input);
  if (!found.ok()) return absl::StrCat(std::string(found.status().message()), "\n");
  const PolicyCandidate& best = found->best;
  std::string text =
      absl::StrFormat("%s\n%.3g s a step, %s\ndevice %s of %d GiB, host arena %s\n", best.words,
                      best.step_seconds, BindingResource(best), FormatBytes(best.arena_bytes), gib,
                      FormatBytes(best.host_arena_bytes));
  const StepProgram program = *DraftTrainProgram(spec, layout, best.policy, input.shape);
  for (const auto& [buffer_class, bytes] : BytesByClass(program, Arena::kDevice)) {
    absl::StrAppend(&text, "  ", BufferClassName(buffer_class), " ", FormatBytes(bytes), "\n");
  }
  absl::StrAppend(&text, "not chosen\n");
  for (const RunnerUp& other : found->runners_up) {
    absl::StrAppend(&text, "  ", other.words, ": ", other.why, "\n");
  }
  return text;
}

class PlanGoldenTest : public ::testing::TestWithParam<Golden> {};

TEST_P(PlanGoldenTest, IsAsInReview) {
  const std::string path = absl::StrCat(std::getenv("PENSTOCK_TESTDATA"),
                                        "/../engine/plan/golden/plans/", Name(GetParam()));
  const std::string text = PlanText(GetParam());
  if (std::getenv("PENSTOCK_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::stringstream expected;
  expected << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, expected.str()) << "differs from " << path;
}

INSTANTIATE_TEST_SUITE_P(Plans, PlanGoldenTest, ::testing::ValuesIn(kGolden));

}  // namespace
}  // namespace penstock
