#include <cmath>
#include <string>

#include "engine/base/status.h"
#include "engine/model/layout.h"
#include "engine/model/model_spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace penstock {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json Llama() {
  return {{"model_type", "llama"},
          {"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 512},
          {"hidden_size", 64},
          {"intermediate_size", 176},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 2048},
          {"hidden_act", "silu"},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 500000.0}};
}

json Of(const std::string& family, const std::string& architecture) {
  json config = Llama();
  config["model_type"] = family;
  config["architectures"] = {architecture};
  if (family == "mistral") config["sliding_window"] = nullptr;
  if (family == "qwen3") config["head_dim"] = 32;
  return config;
}
json Mistral() { return Of("mistral", "MistralForCausalLM"); }
json Qwen2() { return Of("qwen2", "Qwen2ForCausalLM"); }
json Qwen3() { return Of("qwen3", "Qwen3ForCausalLM"); }

ModelSpec Parsed(const json& config) {
  const absl::StatusOr<ModelSpec> spec = ParseModelConfig(config.dump());
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : ModelSpec();
}

// The message of a refusal, after checking what kind it is.
std::string Refusal(const json& config, absl::StatusCode code) {
  const absl::StatusOr<ModelSpec> spec = ParseModelConfig(config.dump());
  EXPECT_EQ(spec.status().code(), code) << config.dump() << "\n" << spec.status();
  const bool invalid = code == absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(ReasonOf(spec.status()), invalid ? reason::kModelInvalid : reason::kModelUnsupported);
  return std::string(spec.status().message());
}
std::string Invalid(const json& config) {
  return Refusal(config, absl::StatusCode::kInvalidArgument);
}
std::string Unsupported(const json& config) {
  return Refusal(config, absl::StatusCode::kUnimplemented);
}

json With(json config, const json& changes) {
  for (const auto& [key, value] : changes.items()) config[key] = value;
  return config;
}
json Without(json config, const std::string& key) {
  config.erase(key);
  return config;
}

TEST(ModelConfigTest, ReadsLlama) {
  const ModelSpec spec = Parsed(With(Llama(), {{"tie_word_embeddings", true}}));
  EXPECT_EQ(spec.family, "llama");
  EXPECT_EQ(spec.vocab_size, 512);
  EXPECT_EQ(spec.hidden_size, 64);
  EXPECT_EQ(spec.intermediate_size, 176);
  EXPECT_EQ(spec.num_layers, 2);
  EXPECT_EQ(spec.num_heads, 4);
  EXPECT_EQ(spec.num_kv_heads, 2);
  EXPECT_EQ(spec.head_dim, 16);
  EXPECT_EQ(spec.max_positions, 2048);
  EXPECT_DOUBLE_EQ(spec.rms_norm_eps, 1e-5);
  EXPECT_DOUBLE_EQ(spec.attention_scale, 0.25);
  EXPECT_DOUBLE_EQ(spec.rope.theta, 500000);
  EXPECT_TRUE(spec.tied());
  EXPECT_FALSE(spec.qkv_bias || spec.o_bias || spec.mlp_bias);
  EXPECT_THAT(spec.window, ElementsAre(0, 0));
  EXPECT_DOUBLE_EQ(spec.initializer_range, 0.02);
}

TEST(ModelConfigTest, SupportedFamiliesAreSorted) {
  EXPECT_THAT(SupportedFamilies(), ElementsAre("llama", "mistral", "qwen2", "qwen3"));
}

TEST(ModelConfigTest, TiesByDefaultInNoFamily) {
  for (const json& config : {Llama(), Mistral(), Qwen2(), Qwen3()}) {
    EXPECT_FALSE(Parsed(config).tied());
    EXPECT_TRUE(Parsed(With(config, {{"tie_word_embeddings", true}})).tied());
  }
}

TEST(ModelConfigTest, BiasesFollowTheFamily) {
  const json biased = {{"attention_bias", true}};
  EXPECT_TRUE(Parsed(With(Llama(), biased)).qkv_bias);
  EXPECT_TRUE(Parsed(With(Llama(), biased)).o_bias);
  EXPECT_TRUE(Parsed(With(Llama(), {{"mlp_bias", true}})).mlp_bias);
  EXPECT_TRUE(Parsed(With(Qwen3(), biased)).qkv_bias);
  EXPECT_TRUE(Parsed(With(Qwen3(), biased)).o_bias);
  EXPECT_FALSE(Parsed(Qwen3()).qkv_bias);
  EXPECT_TRUE(Parsed(Qwen2()).qkv_bias);
  EXPECT_FALSE(Parsed(Qwen2()).o_bias);
  EXPECT_THAT(Invalid(With(Mistral(), biased)), HasSubstr("attention_bias"));
  EXPECT_THAT(Invalid(With(Qwen2(), {{"mlp_bias", true}})), HasSubstr("mlp_bias"));
}

TEST(ModelConfigTest, OnlyQwen3NormalisesQueriesAndKeys) {
  EXPECT_EQ(Parsed(Qwen3()).qk_norm, QkNorm::kPerHead);
  for (const json& config : {Llama(), Mistral(), Qwen2()}) {
    EXPECT_EQ(Parsed(config).qk_norm, QkNorm::kNone);
  }
}

TEST(ModelConfigTest, HeadDimOverridesTheQuotient) {
  const ModelSpec spec = Parsed(With(Mistral(), {{"head_dim", 64}}));
  EXPECT_EQ(spec.q_size(), 256);
  EXPECT_EQ(Parsed(With(Llama(), {{"head_dim", nullptr}})).head_dim, 16);
  EXPECT_THAT(Invalid(Without(Qwen3(), "head_dim")), HasSubstr("head_dim is missing"));
  EXPECT_THAT(Invalid(With(Llama(), {{"head_dim", 15}})), HasSubstr("even"));
  EXPECT_THAT(Invalid(With(Llama(), {{"hidden_size", 66}})), HasSubstr("multiple"));
}

TEST(ModelConfigTest, KeyValueHeadsMustDivideHeads) {
  EXPECT_EQ(Parsed(Without(Llama(), "num_key_value_heads")).num_kv_heads, 4);
  EXPECT_EQ(Parsed(With(Mistral(), {{"num_key_value_heads", nullptr}})).num_kv_heads, 4);
  EXPECT_THAT(Invalid(Without(Mistral(), "num_key_value_heads")), HasSubstr("num_key_value_heads"));
  EXPECT_THAT(Invalid(With(Llama(), {{"num_key_value_heads", 3}})),
              AllOf(HasSubstr("is 4"), HasSubstr("is 3")));
}

TEST(ModelConfigTest, MistralSlidesEveryLayerUnlessNull) {
  EXPECT_THAT(Parsed(With(Mistral(), {{"sliding_window", 32}})).window, ElementsAre(32, 32));
  EXPECT_THAT(Parsed(Mistral()).window, ElementsAre(0, 0));
  EXPECT_THAT(Invalid(Without(Mistral(), "sliding_window")),
              HasSubstr("sliding_window is missing"));
}

TEST(ModelConfigTest, QwenSlidesUpperLayersOnlyWhenAsked) {
  for (const json& config : {Qwen2(), Qwen3()}) {
    const json window = {{"sliding_window", 32}, {"max_window_layers", 1}};
    EXPECT_THAT(Parsed(With(config, window)).window, ElementsAre(0, 0));
    const json used = With(With(config, window), {{"use_sliding_window", true}});
    EXPECT_THAT(Parsed(used).window, ElementsAre(0, 32));
    EXPECT_THAT(Parsed(With(used, {{"max_window_layers", 28}})).window, ElementsAre(0, 0));
    EXPECT_THAT(Invalid(Without(used, "max_window_layers")), HasSubstr("max_window_layers"));
    EXPECT_THAT(Invalid(Without(used, "sliding_window")), HasSubstr("sliding_window"));
  }
}

TEST(ModelConfigTest, LayerTypesChooseTheSlidingLayers) {
  const json types = {{"layer_types", {"sliding_attention", "full_attention"}},
                      {"sliding_window", 32},
                      {"use_sliding_window", true}};
  EXPECT_THAT(Parsed(With(Qwen3(), types)).window, ElementsAre(32, 0));
  EXPECT_THAT(Invalid(With(With(Qwen3(), types), {{"use_sliding_window", false}})),
              HasSubstr("layer_types[0]"));
  EXPECT_THAT(Invalid(With(Qwen3(), {{"layer_types", {"full_attention"}}})),
              HasSubstr("list of 2"));
  EXPECT_THAT(Unsupported(With(Qwen3(), {{"layer_types", {"full_attention", "linear"}}})),
              HasSubstr("\"linear\""));
  EXPECT_THAT(Invalid(With(Mistral(), {{"layer_types", {"sliding_attention", "full_attention"}},
                                       {"sliding_window", 8}})),
              HasSubstr("layer_types[1]"));
}

TEST(ModelConfigTest, LlamaWithAWindowIsAContradiction) {
  EXPECT_THAT(Invalid(With(Llama(), {{"sliding_window", 4096}})), HasSubstr("sliding_window"));
}

json Llama3Scaling() {
  return {{"rope_type", "llama3"},
          {"factor", 32.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 8192}};
}

TEST(ModelConfigTest, BothRopeFormsGiveTheSameSpec) {
  const json old_form = With(Llama(), {{"rope_scaling", Llama3Scaling()}});
  const json new_form =
      With(Without(Llama(), "rope_theta"),
           {{"rope_parameters", With(Llama3Scaling(), {{"rope_theta", 500000}})}});
  const json both = With(old_form, {{"rope_parameters", new_form["rope_parameters"]}});
  const RopeSpec rope = Parsed(old_form).rope;
  EXPECT_EQ(rope.scaling, RopeScaling::kLlama3);
  EXPECT_DOUBLE_EQ(rope.factor, 32);
  EXPECT_EQ(rope.original_max_positions, 8192);
  EXPECT_EQ(Parsed(new_form).rope, rope);
  EXPECT_EQ(Parsed(both).rope, rope);
}

TEST(ModelConfigTest, PlainRopeFormsGiveTheSameSpec) {
  const RopeSpec rope = Parsed(Llama()).rope;
  const json bare = Without(Llama(), "rope_theta");
  for (const json& parameters :
       {json{{"rope_theta", 500000}}, json{{"rope_type", "default"}, {"rope_theta", 500000.0}},
        json{{"type", "default"}, {"rope_theta", 500000.0}, {"partial_rotary_factor", 1.0}}}) {
    EXPECT_EQ(Parsed(With(bare, {{"rope_parameters", parameters}})).rope, rope);
  }
  EXPECT_EQ(Parsed(With(Llama(), {{"rope_scaling", nullptr}})).rope, rope);
}

TEST(ModelConfigTest, OldStyleTypeKeyIsRead) {
  const json config = With(Llama(), {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}});
  EXPECT_EQ(Parsed(config).rope.scaling, RopeScaling::kLinear);
  EXPECT_DOUBLE_EQ(Parsed(config).rope.factor, 2);
}

TEST(ModelConfigTest, MissingThetaIsNeverGuessed) {
  EXPECT_THAT(Invalid(Without(Llama(), "rope_theta")), HasSubstr("rope_theta is missing"));
  EXPECT_THAT(Invalid(With(Without(Llama(), "rope_theta"),
                           {{"rope_parameters", {{"rope_type", "default"}}}})),
              HasSubstr("rope_theta is missing"));
}

TEST(ModelConfigTest, ContradictoryRopeIsRefused) {
  EXPECT_THAT(Invalid(With(Llama(), {{"rope_parameters", {{"rope_theta", 10000}}}})),
              AllOf(HasSubstr("10000"), HasSubstr("500000")));
  EXPECT_THAT(Invalid(With(Llama(), {{"rope_parameters", {{"rope_theta", 500000}}},
                                     {"rope_scaling", {{"type", "linear"}, {"factor", 2}}}})),
              HasSubstr("rope_scaling"));
  EXPECT_THAT(
      Invalid(With(Llama(), {{"rope_scaling", {{"type", "linear"}, {"rope_type", "default"}}}})),
      HasSubstr("\"linear\""));
  EXPECT_THAT(Invalid(With(Llama(), {{"rope_scaling", {{"rope_type", "default"}, {"factor", 8}}}})),
              HasSubstr("factor"));
}

TEST(ModelConfigTest, UnsupportedRopeIsNamed) {
  for (const char* type : {"yarn", "dynamic", "longrope", "mrope", "surprise"}) {
    EXPECT_THAT(Unsupported(With(Llama(), {{"rope_scaling", {{"type", type}, {"factor", 2}}}})),
                AllOf(HasSubstr(type), HasSubstr("supported: default, linear, llama3")));
    EXPECT_THAT(Unsupported(With(
                    Llama(), {{"rope_parameters", {{"rope_type", type}, {"rope_theta", 500000}}}})),
                HasSubstr(type));
  }
  const json keyed = {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 1e6}}},
                      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
  EXPECT_THAT(Unsupported(With(Llama(), {{"rope_parameters", keyed}})),
              AllOf(HasSubstr("full_attention"), HasSubstr("layer type")));
  EXPECT_THAT(Unsupported(With(Llama(), {{"partial_rotary_factor", 0.5}})),
              HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(
      Unsupported(With(Llama(), {{"rope_parameters",
                                  {{"rope_theta", 500000}, {"partial_rotary_factor", 0.5}}}})),
      HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(Unsupported(With(Llama(), {{"rope_parameters",
                                          {{"rope_theta", 500000}, {"mrope_section", {1, 2}}}}})),
              HasSubstr("mrope_section"));
}

TEST(ModelConfigTest, IncompleteLlama3ScalingIsRefused) {
  for (const char* key :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    EXPECT_THAT(Invalid(With(Llama(), {{"rope_scaling", Without(Llama3Scaling(), key)}})),
                HasSubstr(key));
  }
  EXPECT_THAT(
      Invalid(With(Llama(), {{"rope_scaling", With(Llama3Scaling(), {{"high_freq_factor", 1}})}})),
      HasSubstr("high_freq_factor"));
}

TEST(ModelConfigTest, UnsupportedModelsAreNamedWithTheSupportedOnes) {
  for (const char* type : {"gemma3", "deepseek_v3", "llava", "Llama"}) {
    EXPECT_THAT(Unsupported(With(Llama(), {{"model_type", type}})),
                AllOf(HasSubstr(type), HasSubstr("llama, mistral, qwen2, qwen3")));
  }
  EXPECT_THAT(Unsupported(With(Llama(), {{"text_config", json::object()}})),
              HasSubstr("text_config"));
  EXPECT_THAT(Unsupported(With(Llama(), {{"architectures", {"LlamaForSequenceClassification"}}})),
              HasSubstr("LlamaForSequenceClassification"));
  EXPECT_THAT(Invalid(Without(Llama(), "model_type")), HasSubstr("model_type is missing"));
}

TEST(ModelConfigTest, UnsupportedSwitchesAreNamed) {
  EXPECT_THAT(Unsupported(With(Llama(), {{"hidden_act", "gelu"}})),
              AllOf(HasSubstr("gelu"), HasSubstr("silu")));
  EXPECT_THAT(Unsupported(With(Llama(), {{"attention_dropout", 0.1}})),
              HasSubstr("attention_dropout"));
  EXPECT_TRUE(ParseModelConfig(With(Llama(), {{"attention_dropout", 0.0}}).dump()).ok());
  EXPECT_THAT(Unsupported(With(Llama(), {{"quantization_config", {{"quant_method", "fp8"}}}})),
              AllOf(HasSubstr("quantization_config"), HasSubstr("fp8")));
  EXPECT_THAT(Unsupported(With(Llama(), {{"pretraining_tp", 2}})), HasSubstr("pretraining_tp"));
}

TEST(ModelConfigTest, EveryFieldThatChangesTheMathsIsRequired) {
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "max_position_embeddings", "hidden_act", "rms_norm_eps"}) {
    EXPECT_THAT(Invalid(Without(Llama(), key)), HasSubstr(std::string(key) + " is missing"));
  }
}

TEST(ModelConfigTest, SizesOutOfBoundsAreRefusedByKey) {
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "max_position_embeddings", "head_dim"}) {
    for (const json& value :
         {json(0), json(-1), json(int64_t{1} << 62), json(UINT64_MAX), json(64.0), json("64"),
          json(true), json::array({64}), json::object()}) {
      EXPECT_THAT(Invalid(With(Llama(), {{key, value}})), HasSubstr(key)) << value;
    }
  }
  EXPECT_THAT(Invalid(With(Llama(), {{"num_attention_heads", 16384},
                                     {"num_key_value_heads", 1},
                                     {"head_dim", 4096}})),
              HasSubstr("head_dim"));
}

TEST(ModelConfigTest, WrongTypesAreNamedByKey) {
  const std::pair<const char*, json> cases[] = {
      {"rms_norm_eps", "1e-5"},  {"rms_norm_eps", 0},        {"rope_theta", "10000"},
      {"rope_theta", 0},         {"rope_theta", -1},         {"tie_word_embeddings", 1},
      {"attention_bias", "yes"}, {"model_type", 3},          {"architectures", "Llama"},
      {"architectures", {1}},    {"rope_scaling", "yarn"},   {"rope_parameters", {1, 2}},
      {"hidden_act", {"silu"}},  {"attention_dropout", "0"}, {"initializer_range", "small"},
      {"pretraining_tp", "1"}};
  for (const auto& [key, value] : cases) {
    EXPECT_THAT(Invalid(With(Llama(), {{key, value}})), HasSubstr(key)) << value;
  }
}

TEST(ModelConfigTest, OtherFilesInPlaceOfTheConfigAreNamed) {
  const auto message = [](const std::string& text) {
    return std::string(ParseModelConfig(text).status().message());
  };
  EXPECT_THAT(message("version https://git-lfs.github.com/spec/v1\n"), HasSubstr("git lfs pull"));
  EXPECT_THAT(message("<html>404</html>"), HasSubstr("web page"));
  EXPECT_THAT(message(""), HasSubstr("empty"));
  EXPECT_THAT(message("[1]"), HasSubstr("object is needed"));
  EXPECT_THAT(message(R"({"vocab_size": 1, "vocab_size": 2})"), HasSubstr("twice"));
}

// Multiplications and additions of one forward pass, counted matrix by matrix.
double CountedForwardFlops(const ModelSpec& spec, double mean_keys) {
  double matrices = static_cast<double>(spec.vocab_size * spec.hidden_size);  // the head
  double attention = 0;
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    matrices += static_cast<double>(spec.hidden_size * (spec.q_size() + 2 * spec.kv_size()) +
                                    spec.q_size() * spec.hidden_size +
                                    3 * spec.hidden_size * spec.intermediate_size);
    attention += 2 * static_cast<double>(spec.q_size()) * mean_keys;  // scores, then values
  }
  return 2 * (matrices + attention);
}

TEST(TrainFlopsTest, AgreesWithACountedGraph) {
  const int64_t context = 1024;
  for (const bool tied : {false, true}) {
    json config = With(Llama(), {{"hidden_size", 1024},
                                 {"intermediate_size", 4096},
                                 {"vocab_size", 32000},
                                 {"tie_word_embeddings", tied}});
    const ModelSpec spec = Parsed(config);
    // Norms make the small rest; the backward pass costs twice the forward.
    const double counted = 3 * CountedForwardFlops(spec, static_cast<double>(context) / 2);
    EXPECT_NEAR(TrainFlopsPerToken(spec, context) / counted, 1, 1e-3) << tied;
  }
}

}  // namespace
}  // namespace penstock
