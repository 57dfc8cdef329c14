#include "tests/engine/train/train_testing.h"

#include <algorithm>
#include <random>
#include <utility>

#include "engine/base/check.h"

namespace penstock::testing {

nlohmann::json ByteModelConfig() {
  return {{"model_type", "llama"},
          {"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 320},
          {"hidden_size", 16},
          {"intermediate_size", 24},
          {"num_hidden_layers", 1},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"max_position_embeddings", 4096},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", true}};
}

nlohmann::json UntiedModel() {
  nlohmann::json model = ByteModelConfig();
  model["tie_word_embeddings"] = false;  // rounds then change no bit
  model["num_hidden_layers"] = 2;
  return model;
}

std::vector<Policy> DeferringAndPlacing() {
  const auto all = [](BlockPlacement placement) {
    return std::vector<BlockPlacement>(4, placement);
  };
  return {{.update_time = UpdateTime::kNextStep},
          {.update_time = UpdateTime::kNextStepMomentsLater},
          {.micro_batches_per_round = 1,
           .placements = all({.weights = true, .gradients = true, .state = true})},
          {.micro_batches_per_round = 1,
           .update_time = UpdateTime::kNextStep,
           .placements = all({.weights = true, .gradients = true})},
          {.saving = {SaveLevel::kInput, SavePlace::kHost}, .update_time = UpdateTime::kNextStep},
          // State on the device, of all blocks and of some, that an update is still to change.
          {.micro_batches_per_round = 1,
           .update_time = UpdateTime::kNextStep,
           .placements = all({.weights = true, .gradients = true, .state = true})},
          // Master weights whose moments come, into the place of saved tensors and of gradients.
          {.update_time = UpdateTime::kNextStepMomentsLater,
           .placements = {{.state = true}, {.master = true}, {.weights = true}, {}}},
          {.update_time = UpdateTime::kNextStepMomentsLater,
           .placements = {{.gradients = true},
                          {.gradients = true, .master = true},
                          {.weights = true, .gradients = true},
                          {.gradients = true}}},
          {.update_time = UpdateTime::kNextStepMomentsLater,
           .placements = {{},
                          {.weights = true, .gradients = true, .state = true},
                          {.weights = true},
                          {.weights = true, .gradients = true, .state = true}}}};
}

void UsePolicy(const Policy& policy, const ModelInput& model, TrainingPlan& plan) {
  const Policy planned = std::exchange(plan.policy, policy);
  plan.policy.head_chunk_rows = planned.head_chunk_rows;
  plan.policy.gradient_type = planned.gradient_type;
  plan.policy.moment_type = planned.moment_type;
  for (const auto& program :
       {TrainProgram(model, plan, plan.micro_batches), EvaluationProgram(model, plan)}) {
    PENSTOCK_CHECK(program.ok(), program.status().ToString());
    plan.executor.arena_bytes = std::max(plan.executor.arena_bytes, program->arena_bytes);
    plan.executor.host_arena_bytes =
        std::max(plan.executor.host_arena_bytes, program->host_arena_bytes);
  }
}

TrainConfig TinyTrainConfig(const std::string& directory, const std::string& data_path) {
  TrainConfig config;
  config.model = ModelFromConfig{ByteModelConfig().dump()};
  config.data.datasets = {{.source = {.format = DataFormat::kText,
                                      .paths = {data_path},
                                      .text_documents = TextDocuments::kBlankLine}}};
  config.batch = {.sequence_length = 16,
                  .tokens_per_step = 64,
                  .micro_batch_tokens = 32,
                  .save_level = SaveLevel::kAll};
  config.optimizer.learning_rate = 1e-2;
  config.schedule.max_steps = 4;
  config.seed = 1;
  config.compute_threads = 1;
  config.checkpoint_directory = directory + "/checkpoints";
  config.token_cache_directory = directory + "/cache";
  return config;
}

std::string SomeText(int64_t bytes) {
  static constexpr const char* kWords[] = {"water", "under", "the",   "mill",  "turns", "a",
                                           "wheel", "of",    "stone", "and",   "wood",  "while",
                                           "rain",  "falls", "on",    "slate", "roofs", "again"};
  std::mt19937 random(3);
  std::string text;
  while (static_cast<int64_t>(text.size()) < bytes) {
    for (int word = 0; word < 12; ++word) {
      text += kWords[random() % std::size(kWords)];
      text += word == 11 ? ".\n\n" : " ";
    }
  }
  return text;
}

}  // namespace penstock::testing
