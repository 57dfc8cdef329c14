#include "engine/model/layout.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/units.h"

namespace penstock {
namespace {

// Appends parameters to one block. Group() starts the next parameter on an aligned offset;
// parameters added without it follow the last one without a gap.
class LayoutBuilder {
 public:
  LayoutBuilder(BlockId block, std::string prefix) : prefix_(std::move(prefix)) {
    layout_.block = block;
  }

  LayoutBuilder& Group() {
    layout_.size = RoundUp(layout_.size, kParameterAlignment);
    return *this;
  }

  LayoutBuilder& Add(Role role, const char* name, std::vector<int64_t> shape) {
    const int64_t size =
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    const Decay decay = shape.size() >= 2 ? Decay::kApply : Decay::kNone;
    layout_.parameters.push_back({.role = role,
                                  .name = absl::StrCat(prefix_, name),
                                  .shape = std::move(shape),
                                  .offset = layout_.size,
                                  .size = size,
                                  .decay = decay});
    layout_.size += size;
    return *this;
  }

  BlockLayout Build() {
    Group();
    return std::move(layout_);
  }

 private:
  std::string prefix_;
  BlockLayout layout_;
};

BlockLayout EmbeddingBlock(const ModelSpec& spec) {
  return LayoutBuilder(BlockId{0}, "model.")
      .Add(Role::kEmbedding, "embed_tokens.weight", {spec.vocab_size, spec.hidden_size})
      .Build();
}

BlockLayout DecoderBlock(const ModelSpec& spec, int64_t layer) {
  const int64_t hidden = spec.hidden_size, q = spec.q_size(), kv = spec.kv_size();
  const int64_t intermediate = spec.intermediate_size;
  LayoutBuilder builder(BlockId{static_cast<int32_t>(layer + 1)},
                        absl::StrCat("model.layers.", layer, "."));
  builder.Group().Add(Role::kInputNorm, "input_layernorm.weight", {hidden});
  builder.Group()
      .Add(Role::kQWeight, "self_attn.q_proj.weight", {q, hidden})
      .Add(Role::kKWeight, "self_attn.k_proj.weight", {kv, hidden})
      .Add(Role::kVWeight, "self_attn.v_proj.weight", {kv, hidden});
  if (spec.qkv_bias) {
    builder.Group()
        .Add(Role::kQBias, "self_attn.q_proj.bias", {q})
        .Add(Role::kKBias, "self_attn.k_proj.bias", {kv})
        .Add(Role::kVBias, "self_attn.v_proj.bias", {kv});
  }
  if (spec.qk_norm == QkNorm::kPerHead) {
    builder.Group().Add(Role::kQNorm, "self_attn.q_norm.weight", {spec.head_dim});
    builder.Group().Add(Role::kKNorm, "self_attn.k_norm.weight", {spec.head_dim});
  }
  builder.Group().Add(Role::kOWeight, "self_attn.o_proj.weight", {hidden, q});
  if (spec.o_bias) builder.Group().Add(Role::kOBias, "self_attn.o_proj.bias", {hidden});
  builder.Group().Add(Role::kPostNorm, "post_attention_layernorm.weight", {hidden});
  builder.Group()
      .Add(Role::kGateWeight, "mlp.gate_proj.weight", {intermediate, hidden})
      .Add(Role::kUpWeight, "mlp.up_proj.weight", {intermediate, hidden});
  if (spec.mlp_bias) {
    builder.Group()
        .Add(Role::kGateBias, "mlp.gate_proj.bias", {intermediate})
        .Add(Role::kUpBias, "mlp.up_proj.bias", {intermediate});
  }
  builder.Group().Add(Role::kDownWeight, "mlp.down_proj.weight", {hidden, intermediate});
  if (spec.mlp_bias) builder.Group().Add(Role::kDownBias, "mlp.down_proj.bias", {hidden});
  return builder.Build();
}

BlockLayout HeadBlock(const ModelSpec& spec) {
  LayoutBuilder builder(BlockId{static_cast<int32_t>(spec.num_layers + 1)}, "");
  builder.Add(Role::kFinalNorm, "model.norm.weight", {spec.hidden_size});
  if (!spec.tied()) {
    builder.Group().Add(Role::kHeadWeight, "lm_head.weight", {spec.vocab_size, spec.hidden_size});
  }
  return builder.Build();
}

}  // namespace

const Parameter* BlockLayout::Find(Role role) const {
  for (const Parameter& parameter : parameters) {
    if (parameter.role == role) return &parameter;
  }
  return nullptr;
}

int64_t BlockLayout::OffsetOf(Role role) const {
  const Parameter* parameter = Find(role);
  PENSTOCK_CHECK(parameter != nullptr,
                 absl::StrCat("block ", Index(block), " has no role ", static_cast<int>(role)));
  return parameter->offset;
}

ModelLayout MakeLayout(const ModelSpec& spec) {
  ModelLayout layout;
  layout.blocks.push_back(EmbeddingBlock(spec));
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    layout.blocks.push_back(DecoderBlock(spec, layer));
    layout.max_decoder_block_size =
        std::max(layout.max_decoder_block_size, layout.blocks.back().size);
  }
  layout.blocks.push_back(HeadBlock(spec));
  for (const BlockLayout& block : layout.blocks) {
    for (const Parameter& parameter : block.parameters) layout.parameter_count += parameter.size;
  }
  return layout;
}

}  // namespace penstock
