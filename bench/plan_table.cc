// What models would take and how fast they would train on the machines whose profiles ship, on
// paper: a table in Markdown. Needs no GPU.
//
//   penstock_plan_table [tokens_per_step [micro_batch_tokens [sequence_length]]]
//                        65536           8192                4096      unless given
//
// Each line is the planner's choice, as a job of that shape would get it: bf16 compute and
// gradients, f32 master weights and moments, exact clip. A machine's host gives a job all of its
// memory but the process's share; the device what its context leaves.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "bench/geometry.h"
#include "engine/engine.h"
#include "engine/memory/host_store.h"
#include "engine/model/layout.h"
#include "engine/nn/kernel_scratch.h"
#include "engine/plan/search.h"

namespace penstock {
namespace {

constexpr double kGib = 1 << 30;
constexpr int64_t kHostReserveBytes = int64_t{4} << 30;  // process, batches, page tables
constexpr int64_t kMlpChunkRows = 8192;
constexpr int64_t kSmallest = 7'000'000'000;  // parameters of a model that the table is about

struct StepShape {
  int64_t tokens_per_step = 65536, micro_batch_tokens = 8192, sequence_length = 4096;
};

SearchInput MakeInput(const ModelSpec& spec, const ModelLayout& layout, const StepShape& step,
                      const NamedProfile& machine, int64_t store_bytes, int64_t host_sums_bytes) {
  const ProgramShape shape = {
      .micro_batches = static_cast<int32_t>(step.tokens_per_step / step.micro_batch_tokens),
      .tokens_per_micro_batch = step.micro_batch_tokens,
      .element_bytes = 2,
      .kernel_scratch_bytes = CudaKernelScratchBytes(spec, step.micro_batch_tokens)};
  return {.spec = spec,
          .layout = layout,
          .shape = shape,
          .base = {.head_chunk_rows = 1024,
                   .mlp_chunk_rows = step.micro_batch_tokens > kMlpChunkRows ? kMlpChunkRows : 0,
                   .gradient_type = GradientType::kBfloat16},
          .host_sums_bytes = host_sums_bytes,
          .mean_document_tokens = static_cast<double>(step.sequence_length),
          .machine = machine.rates,
          .device_bytes = machine.device_memory_bytes - kDeviceReserveBytes,
          .host_bytes = machine.host_memory_bytes - kHostReserveBytes - store_bytes};
}

void PrintLine(const std::string& geometry, const StepShape& step, const NamedProfile& machine) {
  const ModelSpec spec = *FindGeometry(geometry);
  const ModelLayout layout = MakeLayout(spec);
  const auto store = [&](GradientPlane plane) {
    return HostStore::BytesNeeded(layout, OptimizerState::kFloat32, plane);
  };
  const int64_t bytes = store(GradientPlane::kBfloat16);
  const std::string head = absl::StrCat(
      "| ", geometry, " | ", std::string(machine.name), " | ",
      static_cast<int64_t>(static_cast<double>(bytes) / kGib + 0.5), " of ",
      static_cast<int64_t>(static_cast<double>(machine.host_memory_bytes) / kGib), " | ");
  if (bytes + kHostReserveBytes > machine.host_memory_bytes) {
    std::printf("%sdoes not fit the host | | | |\n", head.c_str());
    return;
  }
  const auto found = ChoosePolicy(MakeInput(spec, layout, step, machine, bytes,
                                            store(GradientPlane::kBfloat16OverSums) - bytes));
  if (!found.ok()) {
    std::printf("%s%s | | | |\n", head.c_str(), std::string(found.status().message()).c_str());
    return;
  }
  const PolicyCandidate& best = found->best;
  std::printf("%s%.1f | %.0f | %s | %s |\n", head.c_str(),
              static_cast<double>(best.arena_bytes) / kGib,
              static_cast<double>(step.tokens_per_step) / best.step_seconds,
              BindingResource(best).c_str(), best.words.c_str());
}

int Main(int argc, char** argv) {
  StepShape step;
  int64_t* const values[] = {&step.tokens_per_step, &step.micro_batch_tokens,
                             &step.sequence_length};
  for (int i = 1; i < argc && i <= 3; ++i) *values[i - 1] = std::atoll(argv[i]);
  if (step.micro_batch_tokens < 1 || step.sequence_length < 1 ||
      step.tokens_per_step < step.micro_batch_tokens ||
      step.tokens_per_step % step.micro_batch_tokens != 0) {
    std::fprintf(stderr,
                 "tokens_per_step must be a multiple of micro_batch_tokens, all positive\n");
    return 1;
  }
  std::printf(
      "| model | machine | host store GiB | device GiB | tokens/s | bound by | policy |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const std::string& geometry : GeometryNames()) {
    if (MakeLayout(*FindGeometry(geometry)).parameter_count < kSmallest) continue;
    for (const NamedProfile& machine : MachineProfiles()) PrintLine(geometry, step, machine);
  }
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) { return penstock::Main(argc, argv); }
