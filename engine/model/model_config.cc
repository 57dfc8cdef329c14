// config.json to ModelSpec. What tells the families apart is the table below; the defaults for
// absent keys are those of the configuration classes of transformers 5. A default that is a
// guess about the model (theta, eps, a window) is not taken: the key must be there.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/model/config_fields.h"
#include "engine/model/layout.h"
#include "engine/model/model_spec.h"
#include "engine/model/rope_config.h"
#include "engine/model/strict_json.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxHidden = int64_t{1} << 20;
constexpr int64_t kMaxIntermediate = int64_t{1} << 22;
constexpr int64_t kMaxLayers = 2048;
constexpr int64_t kMaxHeads = int64_t{1} << 14;
constexpr int64_t kMaxHeadDim = int64_t{1} << 12;
constexpr int64_t kMaxProjection = int64_t{1} << 22;  // heads * head_dim
constexpr int64_t kMaxPositions = int64_t{1} << 40;
// The largest model these admit, at 16 bytes a parameter, is far from overflowing.
static_assert((kMaxVocab * 2 + kMaxLayers * (4 * kMaxProjection + 3 * kMaxIntermediate)) <
              INT64_MAX / kMaxHidden / 16);

enum class Bias : uint8_t { kNever, kAlways, kConfigKey };
enum class Window : uint8_t {
  kNone,
  kEveryLayer,     // sliding_window, unless null
  kUseSwitchKeys,  // use_sliding_window, sliding_window, max_window_layers
};
// What absence of num_key_value_heads or head_dim means.
enum class IfAbsent : uint8_t { kDerive, kRefuse };

struct Family {
  absl::string_view name;
  absl::string_view architecture;
  Bias qkv_bias;
  Bias o_bias;
  Bias mlp_bias;
  QkNorm qk_norm;
  Window window;
  IfAbsent kv_heads;
  IfAbsent head_dim;
};

// Sorted by name.
constexpr Family kFamilies[] = {
    {"llama", "LlamaForCausalLM", Bias::kConfigKey, Bias::kConfigKey, Bias::kConfigKey,
     QkNorm::kNone, Window::kNone, IfAbsent::kDerive, IfAbsent::kDerive},
    {"mistral", "MistralForCausalLM", Bias::kNever, Bias::kNever, Bias::kNever, QkNorm::kNone,
     Window::kEveryLayer, IfAbsent::kRefuse, IfAbsent::kDerive},
    {"qwen2", "Qwen2ForCausalLM", Bias::kAlways, Bias::kNever, Bias::kNever, QkNorm::kNone,
     Window::kUseSwitchKeys, IfAbsent::kRefuse, IfAbsent::kDerive},
    {"qwen3", "Qwen3ForCausalLM", Bias::kConfigKey, Bias::kConfigKey, Bias::kNever,
     QkNorm::kPerHead, Window::kUseSwitchKeys, IfAbsent::kRefuse, IfAbsent::kRefuse},
};

absl::StatusOr<const Family*> FindFamily(const ConfigFields& config) {
  const std::string supported =
      absl::StrCat("supported: ", absl::StrJoin(SupportedFamilies(), ", "));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string name, config.String("model_type"));
  const Family* family = nullptr;
  for (const Family& candidate : kFamilies) {
    if (candidate.name == name) family = &candidate;
  }
  if (family == nullptr) {
    return config.Unsupported(
        "model_type", absl::StrCat("is ", ShortJson(*config.Find("model_type")), "; ", supported));
  }
  for (const char* part : {"text_config", "vision_config", "audio_config"}) {
    if (config.Find(part) != nullptr) {
      return config.Unsupported(
          part, absl::StrCat("belongs to a multimodal model; plain text models are ", supported));
    }
  }
  if (const json* list = config.Find("architectures")) {
    const bool named = list->is_array() && !list->empty() && (*list)[0].is_string();
    if (!named) return config.Wanted("architectures", "a list of class names");
    if ((*list)[0].get<std::string>() != family->architecture) {
      return config.Unsupported("architectures",
                                absl::StrCat("names ", ShortJson((*list)[0]), "; model_type ", name,
                                             " is supported as ", family->architecture));
    }
  }
  return family;
}

// Switches that change the maths and that the engine has in one position only.
absl::Status RefuseUnsupportedSwitches(const ConfigFields& config) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    const json* value = config.Find(key);
    if (value == nullptr) continue;
    std::string method = "of unknown method";
    if (value->is_object() && value->contains("quant_method")) {
      method = absl::StrCat("with quant_method ", ShortJson((*value)["quant_method"]));
    }
    return config.Unsupported(
        key, absl::StrCat("is present (", method,
                          "): quantised weights cannot be trained; use the BF16, F16 or F32 "
                          "release of the model"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string activation, config.String("hidden_act"));
  if (activation != "silu") {
    return config.Unsupported(
        "hidden_act", absl::StrCat("is ", ShortJson(json(activation)), "; supported: \"silu\""));
  }
  for (const char* key :
       {"attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<double> rate, config.OptionalNumber(key, 0, 1));
    if (rate && *rate != 0) {
      return config.Unsupported(
          key, absl::StrCat("is ", *rate, "; dropout is not supported, set it to 0"));
    }
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<int64_t> tp,
                            config.OptionalInteger("pretraining_tp", 1, 1 << 20));
  if (tp && *tp != 1) {
    return config.Unsupported("pretraining_tp", absl::StrCat("is ", *tp, "; only 1 is supported"));
  }
  return absl::OkStatus();
}

absl::Status ReadSizes(const ConfigFields& config, const Family& family, ModelSpec& spec) {
  PENSTOCK_ASSIGN_OR_RETURN(spec.vocab_size, config.Integer("vocab_size", 1, kMaxVocab));
  PENSTOCK_ASSIGN_OR_RETURN(spec.hidden_size, config.Integer("hidden_size", 1, kMaxHidden));
  PENSTOCK_ASSIGN_OR_RETURN(spec.intermediate_size,
                            config.Integer("intermediate_size", 1, kMaxIntermediate));
  PENSTOCK_ASSIGN_OR_RETURN(spec.num_layers, config.Integer("num_hidden_layers", 1, kMaxLayers));
  PENSTOCK_ASSIGN_OR_RETURN(spec.num_heads, config.Integer("num_attention_heads", 1, kMaxHeads));
  PENSTOCK_ASSIGN_OR_RETURN(spec.max_positions,
                            config.Integer("max_position_embeddings", 1, kMaxPositions));
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<int64_t> kv_heads,
                            config.OptionalInteger("num_key_value_heads", 1, kMaxHeads));
  const bool may_derive =
      family.kv_heads == IfAbsent::kDerive || config.Contains("num_key_value_heads");
  if (!kv_heads && !may_derive) {
    return config.Wanted("num_key_value_heads", "the number of key and value heads");
  }
  spec.num_kv_heads = kv_heads.value_or(spec.num_heads);
  if (spec.num_heads % spec.num_kv_heads != 0) {
    return config.Invalid(
        "num_attention_heads",
        absl::StrCat("is ", spec.num_heads, "; a multiple of num_key_value_heads, which is ",
                     spec.num_kv_heads, ", is needed"));
  }
  return absl::OkStatus();
}

absl::Status ReadHeadDim(const ConfigFields& config, const Family& family, ModelSpec& spec) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<int64_t> head_dim,
                            config.OptionalInteger("head_dim", 1, kMaxHeadDim));
  if (!head_dim && family.head_dim == IfAbsent::kRefuse) {
    return config.Wanted("head_dim", "the size of one attention head");
  }
  if (!head_dim && spec.hidden_size % spec.num_heads != 0) {
    return config.Invalid("hidden_size",
                          absl::StrCat("is ", spec.hidden_size,
                                       " and head_dim is missing; a multiple of "
                                       "num_attention_heads, which is ",
                                       spec.num_heads, ", or an explicit head_dim is needed"));
  }
  spec.head_dim = head_dim.value_or(spec.hidden_size / spec.num_heads);
  if (spec.head_dim % 2 != 0 || spec.head_dim > kMaxHeadDim) {
    return config.Invalid(
        "head_dim", absl::StrCat("is ", spec.head_dim, head_dim ? "" : " (hidden_size / heads)",
                                 "; an even number up to ", kMaxHeadDim, " is needed"));
  }
  if (spec.q_size() > kMaxProjection) {
    return config.Invalid("head_dim", absl::StrCat("times num_attention_heads is ", spec.q_size(),
                                                   "; at most ", kMaxProjection, " is accepted"));
  }
  spec.attention_scale = 1 / std::sqrt(static_cast<double>(spec.head_dim));
  return absl::OkStatus();
}

// A bias switch that the family does not read must not ask for what the family lacks.
absl::StatusOr<bool> ReadBias(const ConfigFields& config, absl::string_view key, Bias bias,
                              absl::string_view family) {
  PENSTOCK_ASSIGN_OR_RETURN(const bool asked, config.Bool(key, false));
  if (bias == Bias::kConfigKey) return asked;
  if (bias == Bias::kNever && asked) {
    return config.Invalid(key, absl::StrCat("is true, but model_type ", family,
                                            " has no such biases; set it to false"));
  }
  return bias == Bias::kAlways;
}

absl::Status ReadSwitches(const ConfigFields& config, const Family& family, ModelSpec& spec) {
  PENSTOCK_ASSIGN_OR_RETURN(spec.rms_norm_eps, config.Number("rms_norm_eps", 1e-30, 1));
  PENSTOCK_ASSIGN_OR_RETURN(spec.qkv_bias,
                            ReadBias(config, "attention_bias", family.qkv_bias, family.name));
  // qwen2 is the one family whose q, k, v differ from o, and it reads no key.
  spec.o_bias = family.o_bias == Bias::kConfigKey && spec.qkv_bias;
  PENSTOCK_ASSIGN_OR_RETURN(spec.mlp_bias,
                            ReadBias(config, "mlp_bias", family.mlp_bias, family.name));
  PENSTOCK_ASSIGN_OR_RETURN(const bool tied, config.Bool("tie_word_embeddings", false));
  spec.head = tied ? HeadWeights::kTiedToEmbedding : HeadWeights::kSeparate;
  spec.qk_norm = family.qk_norm;
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<double> range,
                            config.OptionalNumber("initializer_range", 0, 10));
  if (range) spec.initializer_range = *range;
  return absl::OkStatus();
}

// The window of the sliding layers, 0 if the family or the config has none.
absl::StatusOr<int64_t> ReadWindowSize(const ConfigFields& config, const Family& family) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<int64_t> size,
                            config.OptionalInteger("sliding_window", 1, kMaxPositions));
  PENSTOCK_ASSIGN_OR_RETURN(const bool use, config.Bool("use_sliding_window", false));
  switch (family.window) {
    case Window::kNone:
      if (size || use) {
        return config.Invalid(size ? "sliding_window" : "use_sliding_window",
                              absl::StrCat("is set, but model_type ", family.name,
                                           " has full attention only; remove it"));
      }
      return 0;
    case Window::kEveryLayer:
      if (!config.Contains("sliding_window")) {
        return config.Wanted("sliding_window", "the window in tokens, or null for full attention,");
      }
      return size.value_or(0);
    case Window::kUseSwitchKeys:
      if (use && !size) return config.Wanted("sliding_window", "the window in tokens");
      return use ? *size : 0;
  }
  return 0;
}

// layer_types, if present, says which layers slide; it must be possible and, where a rule
// decides too, agree with it.
absl::Status ApplyLayerTypes(const ConfigFields& config, const Family& family, int64_t size,
                             ModelSpec& spec) {
  const json* types = config.Find("layer_types");
  if (types == nullptr) return absl::OkStatus();
  if (!types->is_array() || static_cast<int64_t>(types->size()) != spec.num_layers) {
    return config.Wanted("layer_types",
                         absl::StrCat("a list of ", spec.num_layers, " (num_hidden_layers)"));
  }
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const json& type = (*types)[layer];
    const bool sliding = type == "sliding_attention";
    const std::string key = absl::StrCat("layer_types[", layer, "]");
    if (!sliding && type != "full_attention") {
      return config.Unsupported(
          key, absl::StrCat("is ", ShortJson(type),
                            "; supported: \"full_attention\", \"sliding_attention\""));
    }
    const int64_t window = sliding ? size : 0;
    const bool rule_decides = family.window != Window::kUseSwitchKeys;
    if ((sliding && size == 0) || (rule_decides && window != spec.window[layer])) {
      return config.Invalid(key, absl::StrCat("is ", ShortJson(type),
                                              ", which contradicts the sliding window keys of "
                                              "model_type ",
                                              family.name));
    }
    spec.window[layer] = window;
  }
  return absl::OkStatus();
}

absl::Status ReadWindows(const ConfigFields& config, const Family& family, ModelSpec& spec) {
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t size, ReadWindowSize(config, family));
  int64_t first_sliding_layer = 0;
  const bool by_rule = config.Find("layer_types") == nullptr;
  if (family.window == Window::kUseSwitchKeys && size > 0 && by_rule) {
    PENSTOCK_ASSIGN_OR_RETURN(first_sliding_layer,
                              config.Integer("max_window_layers", 0, kMaxLayers));
  }
  spec.window.assign(spec.num_layers, 0);
  for (int64_t layer = first_sliding_layer; layer < spec.num_layers; ++layer) {
    spec.window[layer] = size;
  }
  return ApplyLayerTypes(config, family, size, spec);
}

}  // namespace

absl::StatusOr<ModelSpec> ParseModelConfig(const std::string& json_text) {
  PENSTOCK_ASSIGN_OR_RETURN(
      const json root, ParseStrictJson(json_text, "config.json", {.max_bytes = kMaxConfigBytes},
                                       reason::kModelInvalid));
  if (!root.is_object()) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kModelInvalid,
                 absl::StrCat("config.json holds ", ShortJson(root), "; an object is needed"));
  }
  const ConfigFields config(root, "config.json: ");
  PENSTOCK_ASSIGN_OR_RETURN(const Family* family, FindFamily(config));
  PENSTOCK_RETURN_IF_ERROR(RefuseUnsupportedSwitches(config));
  ModelSpec spec;
  spec.family = std::string(family->name);
  PENSTOCK_RETURN_IF_ERROR(ReadSizes(config, *family, spec));
  PENSTOCK_RETURN_IF_ERROR(ReadHeadDim(config, *family, spec));
  PENSTOCK_RETURN_IF_ERROR(ReadSwitches(config, *family, spec));
  PENSTOCK_ASSIGN_OR_RETURN(spec.rope, ParseRopeConfig(config));
  PENSTOCK_RETURN_IF_ERROR(ReadWindows(config, *family, spec));
  return spec;
}

std::vector<std::string> SupportedFamilies() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.name);
  return names;
}

double TrainFlopsPerToken(const ModelSpec& spec, int64_t context) {
  const double parameters = static_cast<double>(MakeLayout(spec).parameter_count);
  const double table = spec.tied() ? 0 : static_cast<double>(spec.vocab_size * spec.hidden_size);
  const double attention = static_cast<double>(spec.num_layers) * static_cast<double>(context) *
                           static_cast<double>(spec.q_size());
  return 6 * (parameters - table) + 6 * attention;
}

}  // namespace penstock
