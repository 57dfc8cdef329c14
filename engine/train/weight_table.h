// What a set of weight files holds, apart from the numbers: enough to write the same set again.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/layout.h"

namespace penstock {

// The types that weights are imported from and exported to.
enum class WeightType : uint8_t { kFloat32, kFloat16, kBFloat16 };

int64_t BytesPerElement(WeightType type);
const char* ToString(WeightType type);                             // "F32", "F16", "BF16"
std::optional<WeightType> WeightTypeFromString(std::string_view);  // of the same three

struct WeightEntry {
  std::string name;  // Hugging Face name
  WeightType type = WeightType::kFloat32;
  std::vector<int64_t> shape;

  int64_t elements() const;
  int64_t bytes() const { return elements() * BytesPerElement(type); }
};

struct WeightFile {
  std::string name;                  // plain file name
  std::vector<WeightEntry> entries;  // in the order of their bytes
};

// A small file that travels with the weights unchanged: tokenizer, chat template, ...
struct SideFile {
  std::string name;
  std::string content;
};

// Everything an export needs besides the values.
struct ExportSource {
  std::string config_json;  // verbatim
  std::vector<WeightFile> files;
  bool indexed = false;  // has a model.safetensors.index.json
  std::vector<SideFile> side_files;
  std::string model_path;  // directory that was imported; "" for random initialisation
};

// The source of a model that was never on disk: every parameter once, in layout order, as
// `type`, cut into files of at most max_file_bytes (one tensor at least).
ExportSource MakeExportSource(const ModelLayout& layout, std::string config_json, WeightType type,
                              int64_t max_file_bytes = int64_t{5'000'000'000});

// Finds parameters by Hugging Face name. "lm_head.weight" of a tied model is its embedding.
// The layout outlives the index.
class ParameterIndex {
 public:
  struct Place {
    BlockId block;
    const Parameter* parameter;
  };
  explicit ParameterIndex(const ModelLayout& layout);
  // Null if the model has no such parameter.
  const Place* Find(std::string_view name) const;

 private:
  std::map<std::string, Place, std::less<>> places_;
};

}  // namespace penstock
