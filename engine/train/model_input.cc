#include "engine/train/model_input.h"

#include "engine/base/status.h"

namespace penstock {
WeightType ToWeightType(ExportElement element) {
  return element == ExportElement::kBFloat16 ? WeightType::kBFloat16 : WeightType::kFloat32;
}

absl::StatusOr<ModelInput> OpenModelInput(const TrainConfig& config) {
  ModelInput input;
  if (const auto* from = std::get_if<ModelFromDirectory>(&config.model)) {
    PENSTOCK_ASSIGN_OR_RETURN(input.directory, ModelDirectory::Open(from->path));
    input.spec = input.directory->spec();
    input.layout = input.directory->layout();
    input.source = input.directory->source();
    return input;
  }
  const auto& random = std::get<ModelFromConfig>(config.model);
  PENSTOCK_ASSIGN_OR_RETURN(input.spec, ParseModelConfig(random.config_json));
  input.layout = MakeLayout(input.spec);
  input.source =
      MakeExportSource(input.layout, random.config_json, ToWeightType(config.export_element));
  return input;
}

}  // namespace penstock
