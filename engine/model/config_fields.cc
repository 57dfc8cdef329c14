#include "engine/model/config_fields.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace penstock {

using nlohmann::json;

std::string ShortJson(const json& value) {
  if (value.is_structured()) return value.is_object() ? "an object" : "a list";
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  if (text.size() > 60) text = absl::StrCat(text.substr(0, 57), "...");
  return text;
}

const json* ConfigFields::Find(absl::string_view key) const {
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

absl::Status ConfigFields::Invalid(absl::string_view key, absl::string_view problem) const {
  return Error(absl::StatusCode::kInvalidArgument, reason::kModelInvalid,
               absl::StrCat(where_, key, " ", problem), {{"key", std::string(key)}});
}

absl::Status ConfigFields::Unsupported(absl::string_view key, absl::string_view problem) const {
  return Error(absl::StatusCode::kUnimplemented, reason::kModelUnsupported,
               absl::StrCat(where_, key, " ", problem), {{"key", std::string(key)}});
}

absl::Status ConfigFields::Wanted(absl::string_view key, absl::string_view wanted) const {
  const json* value = Find(key);
  if (value == nullptr) return Invalid(key, absl::StrCat("is missing; ", wanted, " is needed"));
  return Invalid(key, absl::StrCat("is ", ShortJson(*value), "; ", wanted, " is needed"));
}

absl::StatusOr<std::optional<int64_t>> ConfigFields::OptionalInteger(absl::string_view key,
                                                                     int64_t min,
                                                                     int64_t max) const {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  // Numbers of 2^63 and above are stored unsigned and would turn negative in get<int64_t>().
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() || value->get<uint64_t>() <= uint64_t(INT64_MAX));
  const int64_t number = fits ? value->get<int64_t>() : 0;
  if (!fits || number < min || number > max) {
    return Wanted(key, absl::StrCat("a whole number from ", min, " to ", max));
  }
  return number;
}

absl::StatusOr<int64_t> ConfigFields::Integer(absl::string_view key, int64_t min,
                                              int64_t max) const {
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<int64_t> value, OptionalInteger(key, min, max));
  if (!value) return Wanted(key, absl::StrCat("a whole number from ", min, " to ", max));
  return *value;
}

absl::StatusOr<std::optional<double>> ConfigFields::OptionalNumber(absl::string_view key,
                                                                   double min, double max) const {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= min && number <= max)) {
    return Wanted(key, absl::StrCat("a number from ", min, " to ", max));
  }
  return number;
}

absl::StatusOr<double> ConfigFields::Number(absl::string_view key, double min, double max) const {
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<double> value, OptionalNumber(key, min, max));
  if (!value) return Wanted(key, absl::StrCat("a number from ", min, " to ", max));
  return *value;
}

absl::StatusOr<bool> ConfigFields::Bool(absl::string_view key, bool if_absent) const {
  const json* value = Find(key);
  if (value == nullptr) return if_absent;
  if (!value->is_boolean()) return Wanted(key, "true or false");
  return value->get<bool>();
}

absl::StatusOr<std::string> ConfigFields::String(absl::string_view key) const {
  const json* value = Find(key);
  if (value == nullptr || !value->is_string()) return Wanted(key, "a string");
  return value->get<std::string>();
}

absl::StatusOr<std::optional<ConfigFields>> ConfigFields::OptionalObject(
    absl::string_view key) const {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) return Wanted(key, "an object");
  return ConfigFields(*value, absl::StrCat(where_, key, "."));
}

}  // namespace penstock
