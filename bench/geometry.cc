#include "bench/geometry.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"

namespace penstock {
namespace {

struct Geometry {
  const char* name;
  int64_t hidden, intermediate, layers, heads, kv_heads, head_dim, vocab;
  HeadWeights head;
};

constexpr Geometry kGeometries[] = {
    {"qwen2.5-0.5b", 896, 4864, 24, 14, 2, 64, 151936, HeadWeights::kTiedToEmbedding},
    {"qwen2.5-1.5b", 1536, 8960, 28, 12, 2, 128, 151936, HeadWeights::kTiedToEmbedding},
    {"qwen2.5-3b", 2048, 11008, 36, 16, 2, 128, 151936, HeadWeights::kTiedToEmbedding},
    {"qwen2.5-7b", 3584, 18944, 28, 28, 4, 128, 152064, HeadWeights::kSeparate},
    {"qwen2.5-14b", 5120, 13824, 48, 40, 8, 128, 152064, HeadWeights::kSeparate},
    {"qwen2.5-32b", 5120, 27648, 64, 40, 8, 128, 152064, HeadWeights::kSeparate},
    {"llama3-70b", 8192, 28672, 80, 64, 8, 128, 128256, HeadWeights::kSeparate},
    // A dense model of the size that MegaTrain's paper trains on an H200 with 1.5 TB.
    {"dense-120b", 10240, 36864, 88, 80, 8, 128, 128256, HeadWeights::kSeparate},
    {"llama3-405b", 16384, 53248, 126, 128, 8, 128, 128256, HeadWeights::kSeparate},
};

ModelSpec SpecOf(const Geometry& geometry) {
  return {.family = "qwen2",
          .vocab_size = geometry.vocab,
          .hidden_size = geometry.hidden,
          .intermediate_size = geometry.intermediate,
          .num_layers = geometry.layers,
          .num_heads = geometry.heads,
          .num_kv_heads = geometry.kv_heads,
          .head_dim = geometry.head_dim,
          .max_positions = 131072,
          .rms_norm_eps = 1e-6,
          .attention_scale = 1 / std::sqrt(static_cast<double>(geometry.head_dim)),
          .rope = {.theta = 1e6},
          .head = geometry.head,
          .qkv_bias = true,
          .window = std::vector<int64_t>(geometry.layers, 0)};
}

}  // namespace

std::vector<std::string> GeometryNames() {
  std::vector<std::string> names;
  for (const Geometry& geometry : kGeometries) names.push_back(geometry.name);
  return names;
}

absl::StatusOr<ModelSpec> FindGeometry(const std::string& name) {
  for (const Geometry& geometry : kGeometries) {
    if (name == geometry.name) return SpecOf(geometry);
  }
  return Error(
      absl::StatusCode::kNotFound, reason::kSpecInvalid,
      absl::StrCat("no geometry '", name, "'; there are ", absl::StrJoin(GeometryNames(), ", ")));
}

}  // namespace penstock
