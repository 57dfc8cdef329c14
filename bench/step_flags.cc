#include "bench/step_flags.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "bench/geometry.h"
#include "engine/base/status.h"

namespace penstock {
namespace {

template <typename T>
absl::StatusOr<T> Choose(const char* flag, const std::string& value,
                         const std::map<std::string, T>& choices) {
  if (const auto found = choices.find(value); found != choices.end()) return found->second;
  std::string names;
  for (const auto& [name, unused] : choices) absl::StrAppend(&names, " ", name);
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", value, ": wanted one of", names));
}

}  // namespace

FlagTables TablesOf(StepFlags& flags) {
  return {.texts = {{"geometry", &flags.geometry},
                    {"save", &flags.save},
                    {"save_place", &flags.save_place},
                    {"first_save", &flags.first_save},
                    {"update", &flags.update},
                    {"gradients", &flags.gradients},
                    {"moments", &flags.moments},
                    {"machine", &flags.machine},
                    {"page_lock", &flags.page_lock},
                    {"commit", &flags.commit},
                    {"date", &flags.date}},
          .numbers = {{"layers", &flags.layers},
                      {"micro_batches", &flags.micro_batches},
                      {"micro_batch_tokens", &flags.micro_batch_tokens},
                      {"sequence_length", &flags.sequence_length},
                      {"steps", &flags.steps},
                      {"threads", &flags.threads},
                      {"round", &flags.round},
                      {"first_round", &flags.first_round},
                      {"first_save_all_layers", &flags.first_save_all_layers},
                      {"first_host_layers", &flags.first_host_layers},
                      {"slots", &flags.slots},
                      {"head_chunk_rows", &flags.head_chunk_rows},
                      {"mlp_chunk_rows", &flags.mlp_chunk_rows},
                      {"device_weights", &flags.device_weights},
                      {"device_gradients", &flags.device_gradients},
                      {"device_state", &flags.device_state},
                      {"device_master", &flags.device_master},
                      {"save_all_layers", &flags.save_all_layers},
                      {"host_attention_layers", &flags.host_attention_layers},
                      {"host_input_layers", &flags.host_input_layers}},
          .reals = {{"device_cap_gib", &flags.device_cap_gib}},
          .switches = {{"plan_only", &flags.plan_only}, {"search", &flags.search}}};
}

absl::Status CheckStepFlags(const StepFlags& flags) {
  if (flags.micro_batches >= 1 && flags.sequence_length >= 1 && flags.micro_batch_tokens >= 1 &&
      flags.micro_batch_tokens % flags.sequence_length == 0 && flags.steps >= 1 &&
      flags.head_chunk_rows >= 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "micro_batch_tokens must be a multiple of sequence_length, steps at least 1 and "
      "head_chunk_rows at least 1");
}

absl::StatusOr<StepFlags> ParseStepFlags(int argc, char** argv) {
  StepFlags flags;
  absl::Status status = ParseFlags(argc, argv, TablesOf(flags));
  if (status.ok()) status = CheckStepFlags(flags);
  if (!status.ok()) return status;
  return flags;
}

absl::StatusOr<ModelSpec> SpecOf(const StepFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(ModelSpec spec, FindGeometry(flags.geometry));
  if (flags.layers == 0) return spec;
  if (flags.layers < 1 || flags.layers > spec.num_layers) {
    return absl::InvalidArgumentError(absl::StrCat("--layers=", flags.layers, ": ", flags.geometry,
                                                   " has 1 to ", spec.num_layers));
  }
  spec.num_layers = flags.layers;
  spec.window.resize(flags.layers);
  return spec;
}

absl::StatusOr<PageLock> PageLockOf(const StepFlags& flags) {
  return Choose<PageLock>("page_lock", flags.page_lock,
                          {{"required", PageLock::kRequired},
                           {"preferred", PageLock::kPreferred},
                           {"off", PageLock::kOff}});
}

absl::StatusOr<Policy> PolicyOf(const StepFlags& flags, const ModelSpec& spec) {
  const auto level = Choose<SaveLevel>("save", flags.save,
                                       {{"all", SaveLevel::kAll},
                                        {"attention", SaveLevel::kAttention},
                                        {"input", SaveLevel::kInput}});
  const auto place = Choose<SavePlace>(
      "save_place", flags.save_place, {{"device", SavePlace::kDevice}, {"host", SavePlace::kHost}});
  const auto update = Choose<UpdateTime>("update", flags.update,
                                         {{"next", UpdateTime::kNextStep},
                                          {"next_moments_later", UpdateTime::kNextStepMomentsLater},
                                          {"end", UpdateTime::kEndOfStep},
                                          {"backward", UpdateTime::kWithBackward}});
  const auto type =
      Choose<GradientType>("gradients", flags.gradients,
                           {{"bf16", GradientType::kBfloat16}, {"fp32", GradientType::kFloat32}});
  const auto moments = Choose<MomentType>("moments", flags.moments,
                                          {{"fp32", MomentType::kFloat32},
                                           {"bf16", MomentType::kBfloat16},
                                           {"int8_blocks", MomentType::kInt8Blocks}});
  const auto first_level = Choose<SaveLevel>("first_save", flags.first_save,
                                             {{"all", SaveLevel::kAll},
                                              {"attention", SaveLevel::kAttention},
                                              {"input", SaveLevel::kInput}});
  for (const absl::Status& status : {level.status(), place.status(), first_level.status(),
                                     update.status(), type.status(), moments.status()}) {
    if (!status.ok()) return status;
  }
  Policy policy{.saving = {*level, *place},
                .micro_batches_per_round = static_cast<int32_t>(flags.round),
                .micro_batches_in_first_round = static_cast<int32_t>(flags.first_round),
                .decoder_slots = static_cast<int>(flags.slots),
                .head_chunk_rows = flags.head_chunk_rows,
                .mlp_chunk_rows = flags.mlp_chunk_rows,
                .gradient_type = *type,
                .moment_type = *moments,
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
  if (flags.first_round > 0) policy.first_savings.assign(layers, {*first_level});
  for (int64_t layer = 0; layer < layers && flags.first_round > 0; ++layer) {
    if (layer >= layers - flags.first_save_all_layers) {
      policy.first_savings[layer].level = SaveLevel::kAll;
    } else if (layer < flags.first_host_layers) {
      policy.first_savings[layer].place = SavePlace::kHost;
    }
  }
  policy.placements.resize(spec.num_blocks());
  for (int64_t block = 0; block < spec.num_blocks(); ++block) {
    const bool layer = block >= 1 && block <= layers;
    const int64_t after_state = block - flags.device_state;
    policy.placements[block] = {
        .weights = layer && block <= flags.device_weights,
        .gradients = (layer || flags.device_master > 0) && block <= flags.device_gradients,
        .state = after_state < 0,
        .master = after_state >= 0 && after_state < flags.device_master};
  }
  return policy;
}

}  // namespace penstock
