#include "bench/step_flags.h"

#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

constexpr int64_t kLargest = int64_t{1} << 24;

struct Tables {
  std::map<std::string, std::string*> texts;
  std::map<std::string, int64_t*> numbers;
};

Tables TablesOf(StepFlags& flags) {
  return {.texts = {{"geometry", &flags.geometry},
                    {"save", &flags.save},
                    {"save_place", &flags.save_place},
                    {"update", &flags.update},
                    {"gradients", &flags.gradients},
                    {"commit", &flags.commit},
                    {"date", &flags.date}},
          .numbers = {{"micro_batches", &flags.micro_batches},
                      {"micro_batch_tokens", &flags.micro_batch_tokens},
                      {"sequence_length", &flags.sequence_length},
                      {"steps", &flags.steps},
                      {"threads", &flags.threads},
                      {"round", &flags.round},
                      {"extra", &flags.extra},
                      {"slots", &flags.slots},
                      {"head_chunk_rows", &flags.head_chunk_rows},
                      {"mlp_chunk_rows", &flags.mlp_chunk_rows},
                      {"device_weights", &flags.device_weights},
                      {"device_gradients", &flags.device_gradients},
                      {"device_state", &flags.device_state},
                      {"save_all_layers", &flags.save_all_layers},
                      {"host_attention_layers", &flags.host_attention_layers},
                      {"host_input_layers", &flags.host_input_layers}}};
}

template <typename T>
absl::StatusOr<T> Choose(const char* flag, const std::string& value,
                         const std::map<std::string, T>& choices) {
  if (const auto found = choices.find(value); found != choices.end()) return found->second;
  std::string names;
  for (const auto& [name, unused] : choices) absl::StrAppend(&names, " ", name);
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", value, ": wanted one of", names));
}

absl::Status ParseWord(const std::string& word, const Tables& tables, StepFlags& flags) {
  if (word == "--plan_only") {
    flags.plan_only = true;
    return absl::OkStatus();
  }
  const size_t equals = word.find('=');
  if (absl::StartsWith(word, "--") && equals != std::string::npos) {
    const std::string name = word.substr(2, equals - 2), value = word.substr(equals + 1);
    if (const auto text = tables.texts.find(name); text != tables.texts.end()) {
      *text->second = value;
      return absl::OkStatus();
    }
    const auto number = tables.numbers.find(name);
    if (number != tables.numbers.end() && absl::SimpleAtoi(value, number->second) &&
        *number->second >= 0 && *number->second <= kLargest) {
      return absl::OkStatus();
    }
    if (name == "device_cap_gib" && absl::SimpleAtod(value, &flags.device_cap_gib) &&
        flags.device_cap_gib > 0 && flags.device_cap_gib < 1024) {
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("cannot use ", word, ": wanted --name=value, numbers up to ", kLargest));
}

}  // namespace

absl::StatusOr<StepFlags> ParseStepFlags(int argc, char** argv) {
  StepFlags flags;
  const Tables tables = TablesOf(flags);
  for (int i = 1; i < argc; ++i) {
    if (absl::Status status = ParseWord(argv[i], tables, flags); !status.ok()) return status;
  }
  if (flags.micro_batches < 1 || flags.sequence_length < 1 || flags.micro_batch_tokens < 1 ||
      flags.micro_batch_tokens % flags.sequence_length != 0 || flags.steps < 1) {
    return absl::InvalidArgumentError(
        "micro_batch_tokens must be a multiple of sequence_length, and steps at least 1");
  }
  return flags;
}

absl::StatusOr<Policy> PolicyOf(const StepFlags& flags, const ModelSpec& spec) {
  const auto level = Choose<SaveLevel>("save", flags.save,
                                       {{"all", SaveLevel::kAll},
                                        {"attention", SaveLevel::kAttention},
                                        {"input", SaveLevel::kInput}});
  const auto place = Choose<SavePlace>(
      "save_place", flags.save_place, {{"device", SavePlace::kDevice}, {"host", SavePlace::kHost}});
  const auto update = Choose<UpdateTime>(
      "update", flags.update, {{"next", UpdateTime::kNextStep}, {"end", UpdateTime::kEndOfStep}});
  const auto type =
      Choose<GradientType>("gradients", flags.gradients,
                           {{"bf16", GradientType::kBfloat16}, {"fp32", GradientType::kFloat32}});
  for (const absl::Status& status :
       {level.status(), place.status(), update.status(), type.status()}) {
    if (!status.ok()) return status;
  }
  Policy policy{.saving = {*level, *place},
                .micro_batches_per_round = static_cast<int32_t>(flags.round),
                .extra_in_first_round = flags.extra > 0,
                .decoder_slots = static_cast<int>(flags.slots),
                .head_chunk_rows = flags.head_chunk_rows,
                .mlp_chunk_rows = flags.mlp_chunk_rows,
                .gradient_type = *type,
                .update_time = *update};
  const int64_t layers = spec.num_layers;
  policy.savings.assign(layers, policy.saving);
  for (int64_t layer = 0; layer < layers; ++layer) {
    if (layer < flags.host_attention_layers) {
      policy.savings[layer] = {SaveLevel::kAttention, SavePlace::kHost};
    } else if (layer < flags.host_input_layers) {
      policy.savings[layer] = {SaveLevel::kInput, SavePlace::kHost};
    }
  }
  for (int64_t layer = std::max<int64_t>(0, layers - flags.save_all_layers); layer < layers;
       ++layer) {
    policy.savings[layer] = {SaveLevel::kAll, SavePlace::kDevice};
  }
  policy.placements.resize(spec.num_blocks());
  for (int64_t block = 0; block < spec.num_blocks(); ++block) {
    const bool layer = block >= 1 && block <= layers;
    policy.placements[block] = {.weights = layer && block <= flags.device_weights,
                                .gradients = layer && block <= flags.device_gradients,
                                .state = block < flags.device_state};
  }
  return policy;
}

}  // namespace penstock
