// Damaged architectures and batches through the planner: a plan adds up, a refusal has a reason,
// and neither takes the daemon's validation thread for long (the driver names the slowest case).
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "nlohmann/json.hpp"
#include "server/spec/device_choice.h"
#include "server/spec/job_spec.h"
#include "tests/fuzz/mutation.h"
#include "tests/fuzz/server/answer_checks.h"
#include "tests/fuzz/server/message_maker.h"
#include "tests/fuzz/server/server_targets.h"

namespace penstock::fuzz {
namespace {

class PlanTarget final : public Target {
 public:
  explicit PlanTarget(const std::string& testdata)
      : root_(std::filesystem::canonical(testdata + "/../../examples").string()),
        config_(nlohmann::ordered_json::parse(ReadSeed(root_ + "/tiny_llama/config.json"))) {
    spec_.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
    spec_.mutable_data()->add_paths(root_ + "/tiny_llama/text.txt");
    spec_.mutable_data()->mutable_tokenizer()->set_kind(v1::TOKENIZER_KIND_BYTES);
    spec_.mutable_batch()->set_sequence_length(64);
    spec_.mutable_batch()->set_tokens_per_step(512);
    spec_.mutable_optimizer()->set_learning_rate(3e-3);
    spec_.mutable_schedule()->set_max_steps(60);
  }

  absl::StatusOr<Outcome> RunCase(Random& random) override {
    v1::JobSpec spec = spec_;
    nlohmann::ordered_json config = config_;
    if (!random.OneIn(4)) ScaleUp(config, random);
    if (random.OneIn(2)) MutateJson(config, random);
    spec.mutable_model()->mutable_random()->set_config_json(ToText(config));
    v1::BatchSpec& batch = *spec.mutable_batch();
    static constexpr int64_t kTokens[] = {0,    1,       64,      512,     4096,
                                          8192, 1 << 17, 1 << 20, 1 << 24, int64_t{1} << 40};
    if (random.OneIn(2)) batch.set_sequence_length(random.Pick(kTokens));
    if (random.OneIn(2)) batch.set_tokens_per_step(random.Pick(kTokens));
    if (random.OneIn(3)) batch.set_micro_batch_tokens(random.Pick(kTokens));
    if (random.OneIn(6)) ChangeMessage(batch, {""}, random);
    if (random.OneIn(6)) ChangeMessage(*spec.mutable_optimizer(), {""}, random);
    if (random.OneIn(6)) ChangeMessage(*spec.mutable_limits(), {""}, random);
    static const std::vector<std::string> machines = {"h200-1.5tb", "rtx4090-24gb-pcie4", ""};
    const std::string& machine = random.Pick(machines);
    const std::string input = absl::StrCat(machine, " ", spec.Utf8DebugString());
    const absl::StatusOr<MemoryPlanSummary> plan = Plan(spec, machine);
    if (!plan.ok()) {
      if (absl::Status status = CheckReason(plan.status(), input); !status.ok()) return status;
      return Outcome::kRefused;
    }
    if (plan->host_peak_bytes <= 0 || plan->parameters <= 0 || plan->device_bytes < 0 ||
        plan->micro_batch_tokens <= 0 || !(plan->prediction.step_seconds > 0)) {
      return Violation(
          absl::StrCat("a plan that cannot be: host ", plan->host_peak_bytes, ", parameters ",
                       plan->parameters, ", device ", plan->device_bytes, ", micro-batch ",
                       plan->micro_batch_tokens, ", seconds ", plan->prediction.step_seconds),
          input);
    }
    return Outcome::kAccepted;
  }

 private:
  // As PlanJob of the daemon does.
  absl::StatusOr<MemoryPlanSummary> Plan(const v1::JobSpec& spec,
                                         const std::string& machine) const {
    server::DeviceOffer offer{.devices = {}, .missing_gpus = "no driver"};
    if (!machine.empty()) {
      const absl::StatusOr<MachineInfo> info = FindMachine(machine);
      if (!info.ok()) return info.status();
      offer = server::OfferOf(*info);
    }
    absl::StatusOr<server::ResolvedSpec> resolved = server::ResolveJobSpec(spec, {root_}, offer);
    if (!resolved.ok()) return resolved.status();
    resolved->config.device.planned_machine = machine;
    return PlanTraining(resolved->config, {.larger_steps = true});
  }

  // Sizes that models have, or that none has.
  static void ScaleUp(nlohmann::ordered_json& config, Random& random) {
    static constexpr const char* kSizes[] = {
        "hidden_size",         "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "vocab_size",        "head_dim"};
    for (size_t n = random.Below(4); n > 0; --n) {
      config[random.Pick(kSizes)] = int64_t{1} << random.Below(random.OneIn(4) ? 63 : 18);
    }
  }

  const std::string root_;
  const nlohmann::ordered_json config_;
  v1::JobSpec spec_;
};

}  // namespace

std::unique_ptr<Target> MakePlanTarget(const std::string& testdata) {
  return std::make_unique<PlanTarget>(testdata);
}

}  // namespace penstock::fuzz
