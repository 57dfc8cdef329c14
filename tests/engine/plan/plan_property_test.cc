// The search against random models, machines and caps: what it finds is a program that is proved
// and inside its caps, and is found again inside exactly its bytes; what it refuses fits in no way
// that a policy can be written. PENSTOCK_PLAN_CASES says how many are drawn (plan_property_slow:
// 10,000).
#include <cmath>
#include <cstdlib>
#include <random>

#include "bench/geometry.h"
#include "engine/base/status.h"
#include "engine/plan/search.h"
#include "gtest/gtest.h"
#include "tests/engine/plan/plan_testing.h"

namespace penstock {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;
constexpr int kDefaultCases = 300;

// A model, a machine, a batch and caps, all of one seed.
struct Case {
  ModelSpec spec;
  ModelLayout layout;
  ProgramShape shape;
  Policy base;
  MachineProfile machine;
  int64_t host_sums_bytes = 0;
  SaveLevel save_at_most = SaveLevel::kAll;
  SearchSpace space = SearchSpace::kEverything;
  double mean_document_tokens = 0;
  int64_t device_bytes = 0, host_bytes = 0;

  SearchInput Input() const {
    return {.spec = spec,
            .layout = layout,
            .shape = shape,
            .base = base,
            .host_sums_bytes = host_sums_bytes,
            .save_at_most = save_at_most,
            .space = space,
            .mean_document_tokens = mean_document_tokens,
            .machine = machine,
            .device_bytes = device_bytes,
            .host_bytes = host_bytes};
  }
};

class Draw {
 public:
  explicit Draw(int seed) : generator_(static_cast<uint32_t>(seed)) {}

  int64_t Below(int64_t end) { return static_cast<int64_t>(generator_() % end); }
  // Between the two, as likely in each octave.
  int64_t Spread(int64_t low, int64_t high) {
    const double share = static_cast<double>(generator_()) / 0x1p32;
    return static_cast<int64_t>(
        static_cast<double>(low) *
        std::pow(static_cast<double>(high) / static_cast<double>(low), share));
  }
  bool Coin() { return Below(2) == 0; }

 private:
  std::mt19937 generator_;  // its numbers are the standard's, the same everywhere
};

ModelSpec DrawSpec(Draw& draw) {
  const std::vector<std::string> names = GeometryNames();
  ModelSpec spec = draw.Coin() ? *FindGeometry(names[draw.Below(std::ssize(names))])
                               : TinySpec(1, HeadWeights::kSeparate);
  if (spec.family == "llama") {
    spec.num_kv_heads = 1 + draw.Below(4);
    spec.num_heads = spec.num_kv_heads * (1 + draw.Below(8));
    spec.head_dim = 8 * (1 + draw.Below(32));
    spec.hidden_size = 8 * draw.Spread(1, 512);
    spec.intermediate_size = 8 * draw.Spread(1, 2048);
    spec.vocab_size = draw.Spread(2, 300'000);
  }
  spec.head = draw.Coin() ? HeadWeights::kSeparate : HeadWeights::kTiedToEmbedding;
  // Most models shallow: what can go wrong does so with few layers, and deep ones cost more.
  if (draw.Below(8) > 0) spec.num_layers = draw.Spread(1, 12);
  spec.window.assign(spec.num_layers, 0);
  return spec;
}

Case DrawCase(int seed) {
  Draw draw(seed);
  Case drawn;
  drawn.spec = DrawSpec(draw);
  drawn.layout = MakeLayout(drawn.spec);
  const bool cpu = draw.Below(6) == 0;
  const std::span<const NamedProfile> machines = MachineProfiles();
  const NamedProfile machine = cpu ? CpuProfile(static_cast<int>(1 + draw.Below(64)))
                                   : machines[draw.Below(static_cast<int64_t>(machines.size()))];
  drawn.machine = machine.rates;
  drawn.space = cpu ? SearchSpace::kSavingOnly : SearchSpace::kEverything;
  const int64_t most = drawn.spec.num_layers > 12 ? 8 : 24;
  drawn.shape = {.micro_batches = static_cast<int32_t>(draw.Spread(1, most)),
                 .tokens_per_micro_batch = draw.Spread(1, 32768),
                 .element_bytes = cpu ? 4 : 2,
                 .kernel_scratch_bytes = draw.Spread(1, kGib)};
  drawn.base = {.decoder_slots = static_cast<int>(1 + draw.Below(3)),
                .head_chunk_rows = draw.Spread(16, 4096),
                .mlp_chunk_rows = draw.Coin() ? 0 : draw.Spread(256, 8192),
                .gradient_type = cpu ? GradientType::kFloat32 : GradientType::kBfloat16};
  drawn.host_sums_bytes = 4 * drawn.layout.parameter_count;
  drawn.save_at_most = static_cast<SaveLevel>(draw.Below(3));
  drawn.mean_document_tokens = static_cast<double>(draw.Spread(1, 65536));
  // Around the sizes at which choices change: shares of what the whole training state takes.
  const int64_t whole = 20 * drawn.layout.parameter_count + (1 << 20);
  drawn.device_bytes = draw.Spread(whole / 64 + 1, 4 * whole);
  drawn.host_bytes = draw.Below(3) == 0 ? 0 : draw.Spread(1 << 20, 4 * whole);
  return drawn;
}

// The least that a policy of the kind takes: no state on the device, since that only adds.
std::vector<Policy> AllPolicies(const Case& job) {
  std::vector<Policy> policies;
  const auto add = [&](SaveLevel level, SavePlace place, int32_t round, bool weights, bool sums) {
    Policy policy = job.base;
    policy.saving = {level, place};
    policy.micro_batches_per_round = round;
    policy.update_time = UpdateTime::kNextStep;
    policy.placements.assign(job.spec.num_blocks(), {.weights = weights, .gradients = sums});
    policies.push_back(std::move(policy));
  };
  const bool all = job.space == SearchSpace::kEverything;
  for (int level = static_cast<int>(job.save_at_most); level <= 2; ++level) {
    for (SavePlace place : {SavePlace::kDevice, SavePlace::kHost}) {
      if (!all && place == SavePlace::kHost) continue;
      for (int32_t round = 0; round < (all ? job.shape.micro_batches : 1); ++round) {
        for (bool weights : {false, true}) {
          for (bool sums : {false, true}) {
            if (!all && (weights || sums)) continue;
            add(static_cast<SaveLevel>(level), place, round, weights, sums);
          }
        }
      }
    }
  }
  return policies;
}

void ExpectNothingFits(const Case& job) {
  for (const Policy& policy : AllPolicies(job)) {
    const auto program = DraftTrainProgram(job.spec, job.layout, policy, job.shape);
    ASSERT_TRUE(program.ok()) << program.status();
    int64_t host = program->host_arena_bytes;
    if (HasHostSums(policy, job.spec.num_layers, job.shape.micro_batches)) {
      host += job.host_sums_bytes;
    }
    EXPECT_FALSE(program->arena_bytes <= job.device_bytes && host <= job.host_bytes)
        << "fits: " << program->arena_bytes << " of " << job.device_bytes << " and " << host
        << " of " << job.host_bytes << " bytes, rounds of " << policy.micro_batches_per_round
        << ", level " << static_cast<int>(policy.saving.level) << ", place "
        << static_cast<int>(policy.saving.place);
  }
}

// Programs of all kinds prove themselves when they are built; they must also stay in the caps.
void ExpectRuns(const Case& job, const PolicyCandidate& found) {
  ProgramShape shape = job.shape;
  const auto program = BuildTrainProgram(job.spec, job.layout, found.policy, shape);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->arena_bytes, found.arena_bytes);
  EXPECT_LE(program->arena_bytes, job.device_bytes);
  int64_t host = program->host_arena_bytes;
  if (HasHostSums(found.policy, job.spec.num_layers, shape.micro_batches)) {
    host += job.host_sums_bytes;
  }
  EXPECT_EQ(host, found.host_arena_bytes);
  EXPECT_LE(host, job.host_bytes);
  EXPECT_TRUE(std::isfinite(found.step_seconds) && found.step_seconds > 0) << found.step_seconds;

  const auto load = BuildLoadProgram(job.spec, job.layout, found.policy, shape);
  const auto settle =
      BuildSettleProgram(job.spec, job.layout, found.policy, shape, SettleGoal::kReadStore);
  shape.micro_batches = 1;
  const auto evaluation = BuildEvaluationProgram(job.spec, job.layout, found.policy, shape);
  for (const auto* other : {&load, &settle, &evaluation}) {
    ASSERT_TRUE(other->ok()) << other->status();
    EXPECT_LE((*other)->arena_bytes, found.arena_bytes);
    EXPECT_EQ((*other)->host_arena_bytes, 0);
  }
}

// What was reserved for an answer gives that answer again.
void ExpectSame(Case job, const SearchResult& found) {
  job.device_bytes = found.best.arena_bytes;
  job.host_bytes = found.best.host_arena_bytes;
  const auto again = ChoosePolicy(job.Input());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->best.words, found.best.words);
  EXPECT_EQ(again->best.step_seconds, found.best.step_seconds);
  const auto text = [&](const Policy& policy) {
    return ToText(*DraftTrainProgram(job.spec, job.layout, policy, job.shape));
  };
  EXPECT_EQ(text(again->best.policy), text(found.best.policy));
}

// The error names a number of bytes: that many are enough, and one less is not.
void ExpectExactNeed(Case job, const absl::Status& refusal) {
  const int64_t needed = std::stoll(MetadataOf(refusal)["needed_bytes"]);
  ASSERT_GT(needed, job.device_bytes);
  job.device_bytes = needed;
  EXPECT_TRUE(ChoosePolicy(job.Input()).ok());
  --job.device_bytes;
  EXPECT_FALSE(ChoosePolicy(job.Input()).ok());
}

TEST(PlanPropertyTest, WhatIsFoundRunsInsideItsCapsAndWhatIsRefusedFitsInNoWay) {
  const char* wanted = std::getenv("PENSTOCK_PLAN_CASES");
  const int cases = wanted != nullptr ? std::atoi(wanted) : kDefaultCases;
  int found_some = 0, refused = 0;
  for (int seed = 0; seed < cases; ++seed) {
    SCOPED_TRACE(testing::Message() << "case " << seed);
    const Case job = DrawCase(seed);
    const auto found = ChoosePolicy(job.Input());
    if (found.ok()) {
      ++found_some;
      EXPECT_LE(found->ops, kMaxSearchOps + kMaxSearchOps / 50);
      ExpectRuns(job, found->best);
      ExpectSame(job, *found);
    } else {
      ++refused;
      EXPECT_EQ(ReasonOf(found.status()), reason::kDeviceMemoryInsufficient) << found.status();
      ExpectNothingFits(job);
      ExpectExactNeed(job, found.status());
    }
    if (HasFailure()) break;
  }
  EXPECT_TRUE(HasFailure() || (found_some >= cases / 4 && refused >= cases / 10))
      << found_some << " found, " << refused << " refused";
}

}  // namespace
}  // namespace penstock
