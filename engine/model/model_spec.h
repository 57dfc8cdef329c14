// ModelSpec: a decoder-only architecture as data.
//
// Families differ by switches, not by classes: adding one is a function that fills this
// struct from config.json and a table of weight names (docs/adding_a_model.md). Whatever
// changes the maths is a field here; nothing else in the engine asks for the family.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

// How a rotary frequency is derived from theta^(-2i/head_dim); spec in docs/architecture.md.
enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3 };

struct RopeSpec {
  RopeScaling scaling = RopeScaling::kNone;
  double theta = 0;
  double factor = 1;                   // kLinear, kLlama3
  double low_freq_factor = 1;          // kLlama3
  double high_freq_factor = 1;         // kLlama3
  int64_t original_max_positions = 0;  // kLlama3
  bool operator==(const RopeSpec&) const = default;
};

enum class QkNorm : uint8_t { kNone, kPerHead };
// Whether the head multiplies by the embedding table (one parameter, one optimizer slot).
enum class HeadWeights : uint8_t { kSeparate, kTiedToEmbedding };

struct ModelSpec {
  std::string family;  // config.json's model_type
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_positions = 0;
  double rms_norm_eps = 0;
  double attention_scale = 0;  // head_dim^-0.5 for all families so far
  RopeSpec rope;
  QkNorm qk_norm = QkNorm::kNone;
  HeadWeights head = HeadWeights::kSeparate;
  bool qkv_bias = false;  // on q, k and v projections
  bool o_bias = false;    // on the output projection
  bool mlp_bias = false;  // on gate, up and down
  // Sliding window of each layer in tokens, itself included: query q sees keys q-W+1..q.
  // 0 = full causal attention.
  std::vector<int64_t> window;
  // Standard deviation of random initial weights (train/random_init.h).
  double initializer_range = 0.02;

  int64_t q_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
  int64_t num_blocks() const { return num_layers + 2; }
  bool tied() const { return head == HeadWeights::kTiedToEmbedding; }
};

// Reads the text of a config.json. Strict: a field that changes the maths and is missing,
// contradictory (rope_theta here and another rope_parameters.rope_theta there) or of the wrong
// type is InvalidArgument / MODEL_INVALID naming the key, the value and what is accepted; a
// model_type, activation, rope type or switch that the engine lacks is Unimplemented /
// MODEL_UNSUPPORTED with the list of those it has. Never allocates by a number it has not
// bounded.
absl::StatusOr<ModelSpec> ParseModelConfig(const std::string& json_text);

// The model_type values ParseModelConfig accepts, sorted.
std::vector<std::string> SupportedFamilies();

// FLOPs to train on one token, full causal attention over `context` tokens:
//   6 * (parameters - embedding table) + 6 * layers * context * heads * head_dim
// A tied table is not subtracted: looking a row up costs nothing, but the head multiplies by it.
double TrainFlopsPerToken(const ModelSpec& spec, int64_t context);

}  // namespace penstock
