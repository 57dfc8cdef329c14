#include "engine/train/weight_table.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/check.h"

namespace penstock {
namespace {
constexpr char kEmbeddingName[] = "model.embed_tokens.weight";
constexpr char kHeadName[] = "lm_head.weight";
}  // namespace

int64_t BytesPerElement(WeightType type) { return type == WeightType::kFloat32 ? 4 : 2; }

const char* ToString(WeightType type) {
  switch (type) {
    case WeightType::kFloat32:
      return "F32";
    case WeightType::kFloat16:
      return "F16";
    case WeightType::kBFloat16:
      return "BF16";
  }
  return "?";
}

std::optional<WeightType> WeightTypeFromString(std::string_view name) {
  for (WeightType type : {WeightType::kFloat32, WeightType::kFloat16, WeightType::kBFloat16}) {
    if (name == ToString(type)) return type;
  }
  return std::nullopt;
}

int64_t WeightEntry::elements() const {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

ExportSource MakeExportSource(const ModelLayout& layout, std::string config_json, WeightType type,
                              int64_t max_file_bytes) {
  ExportSource source;
  source.config_json = std::move(config_json);
  int64_t file_bytes = 0;
  for (const BlockLayout& block : layout.blocks) {
    for (const Parameter& parameter : block.parameters) {
      WeightEntry entry{.name = parameter.name, .type = type, .shape = parameter.shape};
      if (source.files.empty() || file_bytes + entry.bytes() > max_file_bytes) {
        source.files.emplace_back();
        file_bytes = 0;
      }
      file_bytes += entry.bytes();
      source.files.back().entries.push_back(std::move(entry));
    }
  }
  const size_t count = source.files.size();
  source.indexed = count > 1;
  for (size_t i = 0; i < count; ++i) {
    source.files[i].name = source.indexed
                               ? absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, count)
                               : "model.safetensors";
  }
  return source;
}

ParameterIndex::ParameterIndex(const ModelLayout& layout) {
  for (const BlockLayout& block : layout.blocks) {
    for (const Parameter& parameter : block.parameters) {
      places_.emplace(parameter.name, Place{block.block, &parameter});
    }
  }
  const auto table = places_.find(kEmbeddingName);
  PENSTOCK_CHECK(table != places_.end(), "a layout has an embedding");
  places_.emplace(kHeadName, table->second);  // stays out if the model has a head of its own
}

const ParameterIndex::Place* ParameterIndex::Find(std::string_view name) const {
  const auto it = places_.find(name);
  return it == places_.end() ? nullptr : &it->second;
}

}  // namespace penstock
