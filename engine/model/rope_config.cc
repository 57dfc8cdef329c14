#include "engine/model/rope_config.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace penstock {
namespace {

constexpr double kMaxTheta = 1e15;
constexpr double kMaxFactor = 1e6;
constexpr int64_t kMaxPositions = int64_t{1} << 40;
constexpr absl::string_view kSupportedTypes = "supported: default, linear, llama3";

// Members of rope_scaling and rope_parameters whose meaning we know. Any other (beta_fast,
// long_factor, mrope_section, ...) would change the angles behind our back.
constexpr absl::string_view kKnownKeys[] = {"type",
                                            "rope_type",
                                            "rope_theta",
                                            "factor",
                                            "low_freq_factor",
                                            "high_freq_factor",
                                            "original_max_position_embeddings",
                                            "partial_rotary_factor"};

absl::Status CheckFullRotary(const ConfigFields& fields) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<double> partial,
                            fields.OptionalNumber("partial_rotary_factor", 0, 1));
  if (partial && *partial != 1) {
    return fields.Unsupported("partial_rotary_factor",
                              absl::StrCat("is ", *partial, "; only 1 is supported"));
  }
  return absl::OkStatus();
}

absl::StatusOr<RopeScaling> ParseType(const ConfigFields& rope) {
  const bool has_old = rope.Find("type") != nullptr, has_new = rope.Find("rope_type") != nullptr;
  if (!has_old && !has_new) {
    // transformers 5 writes {"rope_theta": ...} alone for the default type.
    if (rope.Find("factor") == nullptr) return RopeScaling::kNone;
    return rope.Wanted("rope_type", "the kind of scaling that factor belongs to");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string type, rope.String(has_new ? "rope_type" : "type"));
  if (has_old && has_new) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string old_type, rope.String("type"));
    if (old_type != type) {
      return rope.Invalid("rope_type",
                          absl::StrCat("is \"", type.substr(0, 60), "\" but type is \"",
                                       old_type.substr(0, 60), "\"; remove one"));
    }
  }
  if (type == "default") return RopeScaling::kNone;
  if (type == "linear") return RopeScaling::kLinear;
  if (type == "llama3") return RopeScaling::kLlama3;
  return rope.Unsupported(has_new ? "rope_type" : "type",
                          absl::StrCat("is \"", type.substr(0, 60), "\"; ", kSupportedTypes));
}

absl::Status CheckKeys(const ConfigFields& rope) {
  for (const auto& [key, value] : rope.object().items()) {
    if (value.is_object()) {
      return rope.Unsupported(key.substr(0, 60),
                              "is an object: RoPE settings keyed by layer type are not supported; "
                              "one flat set for all layers is");
    }
    bool known = value.is_null();
    for (absl::string_view name : kKnownKeys) known = known || key == name;
    if (!known) {
      return rope.Unsupported(key.substr(0, 60), "is a RoPE setting that is not supported");
    }
  }
  return absl::OkStatus();
}

// The scaling of one of the two objects; theta is read by the caller.
absl::StatusOr<RopeSpec> ParseScaling(const ConfigFields& rope) {
  RopeSpec spec;
  PENSTOCK_ASSIGN_OR_RETURN(spec.scaling, ParseType(rope));
  PENSTOCK_RETURN_IF_ERROR(CheckKeys(rope));
  PENSTOCK_RETURN_IF_ERROR(CheckFullRotary(rope));
  if (spec.scaling == RopeScaling::kNone) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<double> factor,
                              rope.OptionalNumber("factor", 0, kMaxFactor));
    if (factor && *factor != 1) {
      return rope.Invalid("factor", absl::StrCat("is ", *factor,
                                                 " but rope_type is \"default\", which scales "
                                                 "nothing; remove one of them"));
    }
    return spec;
  }
  PENSTOCK_ASSIGN_OR_RETURN(spec.factor, rope.Number("factor", 1, kMaxFactor));
  if (spec.scaling == RopeScaling::kLinear) return spec;
  PENSTOCK_ASSIGN_OR_RETURN(spec.low_freq_factor, rope.Number("low_freq_factor", 1e-6, kMaxFactor));
  PENSTOCK_ASSIGN_OR_RETURN(spec.high_freq_factor,
                            rope.Number("high_freq_factor", 1e-6, kMaxFactor));
  PENSTOCK_ASSIGN_OR_RETURN(spec.original_max_positions,
                            rope.Integer("original_max_position_embeddings", 1, kMaxPositions));
  if (spec.high_freq_factor <= spec.low_freq_factor) {
    return rope.Invalid("high_freq_factor", absl::StrCat("is ", spec.high_freq_factor,
                                                         "; more than low_freq_factor, which is ",
                                                         spec.low_freq_factor, ", is needed"));
  }
  return spec;
}

// Theta from every place that has one; they must agree.
absl::StatusOr<double> ParseTheta(const ConfigFields& config,
                                  const std::optional<ConfigFields>& parameters,
                                  const std::optional<ConfigFields>& scaling) {
  std::optional<double> theta;
  std::string found_at;
  for (const ConfigFields* place :
       {&config, parameters ? &*parameters : nullptr, scaling ? &*scaling : nullptr}) {
    if (place == nullptr) continue;
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<double> value,
                              place->OptionalNumber("rope_theta", 1, kMaxTheta));
    if (!value) continue;
    if (theta && *theta != *value) {
      return place->Invalid("rope_theta",
                            absl::StrCat("is ", *value, " but ", found_at, "rope_theta is ", *theta,
                                         "; keep the one the model was made with"));
    }
    theta = value;
    found_at = place->where();
  }
  if (!theta) {
    return config.Wanted("rope_theta",
                         "the RoPE base the model was trained with, here or in rope_parameters,");
  }
  return *theta;
}

}  // namespace

absl::StatusOr<RopeSpec> ParseRopeConfig(const ConfigFields& config) {
  PENSTOCK_RETURN_IF_ERROR(CheckFullRotary(config));
  PENSTOCK_ASSIGN_OR_RETURN(const auto parameters, config.OptionalObject("rope_parameters"));
  PENSTOCK_ASSIGN_OR_RETURN(const auto scaling, config.OptionalObject("rope_scaling"));
  RopeSpec spec;
  if (parameters) {
    PENSTOCK_ASSIGN_OR_RETURN(spec, ParseScaling(*parameters));
  }
  if (scaling) {
    PENSTOCK_ASSIGN_OR_RETURN(const RopeSpec old_spec, ParseScaling(*scaling));
    if (parameters && !(old_spec == spec)) {
      return config.Invalid("rope_scaling",
                            "and rope_parameters describe different scalings; keep the one the "
                            "model was made with");
    }
    spec = old_spec;
  }
  PENSTOCK_ASSIGN_OR_RETURN(spec.theta, ParseTheta(config, parameters, scaling));
  return spec;
}

}  // namespace penstock
