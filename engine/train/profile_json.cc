// Profiles as JSON: {"name", "card", "identity", "rates": {"matmul_flops": ...}, ...}.
#include <cmath>
#include <span>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/engine.h"
#include "nlohmann/json.hpp"

namespace penstock {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxProfileBytes = 64 << 10;

template <typename Struct>
struct NumberField {
  const char* key;
  double Struct::*member;
};

constexpr NumberField<MachineProfile> kRates[] = {
    {"matmul_flops", &MachineProfile::matmul_flops},
    {"matmul_bytes", &MachineProfile::matmul_bytes},
    {"attention_forward_flops", &MachineProfile::attention_forward_flops},
    {"attention_backward_flops", &MachineProfile::attention_backward_flops},
    {"long_attention_forward_flops", &MachineProfile::long_attention_forward_flops},
    {"long_attention_backward_flops", &MachineProfile::long_attention_backward_flops},
    {"device_bytes", &MachineProfile::device_bytes},
    {"copy_in_bytes", &MachineProfile::copy_in_bytes},
    {"copy_out_bytes", &MachineProfile::copy_out_bytes},
    {"copy_in_share_beside_out", &MachineProfile::copy_in_share_beside_out},
    {"copy_out_share_beside_in", &MachineProfile::copy_out_share_beside_in},
    {"copy_in_share_beside_adamw", &MachineProfile::copy_in_share_beside_adamw},
    {"copy_out_share_beside_adamw", &MachineProfile::copy_out_share_beside_adamw},
    {"adamw_parameters", &MachineProfile::adamw_parameters},
    {"host_bytes", &MachineProfile::host_bytes},
    {"storage_read_bytes", &MachineProfile::storage_read_bytes},
    {"storage_write_bytes", &MachineProfile::storage_write_bytes},
    {"op_seconds", &MachineProfile::op_seconds},
};
constexpr NumberField<PowerDraw> kWatts[] = {
    {"device_busy", &PowerDraw::device_busy},
    {"device_idle", &PowerDraw::device_idle},
    {"host", &PowerDraw::host},
};

absl::Status Invalid(const std::string& origin, const std::string& key, const std::string& found,
                     const std::string& expected) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kProfileInvalid,
               absl::StrCat(origin, ": ", key, ": found ", found, ", expected ", expected,
                            "; measure it again with penstock calibrate"),
               {{"file", origin}, {"field", key}, {"found", found}, {"expected", expected}});
}

// A finite number above `low`, or at it if `low_allowed`.
absl::Status ReadNumber(const Json& object, const std::string& origin, const std::string& key,
                        bool zero_allowed, double& value) {
  const std::string expected =
      absl::StrCat("a number", zero_allowed ? " of at least 0" : " above 0");
  if (!object.contains(key)) return Invalid(origin, key, "nothing", expected);
  const Json& found = object[key];
  if (!found.is_number()) return Invalid(origin, key, found.type_name(), expected);
  value = found.get<double>();
  if (std::isfinite(value) && value < 1e30 && (value > 0 || (zero_allowed && value == 0))) {
    return absl::OkStatus();
  }
  return Invalid(origin, key, absl::StrCat(value), expected);
}

template <typename Struct>
absl::Status ReadNumbers(const Json& whole, const std::string& origin, const std::string& name,
                         std::span<const NumberField<Struct>> fields, bool zero_allowed,
                         Struct& values) {
  if (!whole.contains(name) || !whole[name].is_object()) {
    return Invalid(origin, name, whole.contains(name) ? whole[name].type_name() : "nothing",
                   "an object");
  }
  for (const NumberField<Struct>& field : fields) {
    PENSTOCK_RETURN_IF_ERROR(
        ReadNumber(whole[name], origin, field.key, zero_allowed, values.*field.member));
  }
  return absl::OkStatus();
}

absl::Status ReadText(const Json& whole, const std::string& origin, const std::string& key,
                      std::string& value) {
  if (!whole.contains(key) || !whole[key].is_string()) {
    return Invalid(origin, key, whole.contains(key) ? whole[key].type_name() : "nothing",
                   "a string");
  }
  value = whole[key].get<std::string>();
  return absl::OkStatus();
}

absl::Status ReadBytes(const Json& whole, const std::string& origin, const std::string& key,
                       int64_t& bytes) {
  double value = 0;
  PENSTOCK_RETURN_IF_ERROR(ReadNumber(whole, origin, key, /*zero_allowed=*/true, value));
  if (value > 0x1p60) return Invalid(origin, key, absl::StrCat(value), "at most 2^60");
  bytes = static_cast<int64_t>(value);
  return absl::OkStatus();
}

}  // namespace

std::string ProfileJson(const MeasuredProfile& measured) {
  const NamedProfile& profile = measured.profile;
  Json rates = Json::object(), watts = Json::object();
  for (const auto& field : kRates) rates[field.key] = profile.rates.*field.member;
  for (const auto& field : kWatts) watts[field.key] = profile.power.*field.member;
  const Json whole = {{"name", profile.name},
                      {"card", profile.card},
                      {"identity", measured.identity},
                      {"device_memory_bytes", profile.device_memory_bytes},
                      {"host_memory_bytes", profile.host_memory_bytes},
                      {"datasheet_flops", profile.datasheet_flops},
                      {"measuring_seconds", measured.measuring_seconds},
                      {"rates", rates},
                      {"watts", watts}};
  return whole.dump(2) + "\n";
}

absl::StatusOr<MeasuredProfile> ParseProfileJson(const std::string& text,
                                                 const std::string& origin) {
  if (text.size() > kMaxProfileBytes) {
    return Invalid(origin, "size", absl::StrCat(text.size(), " bytes"),
                   absl::StrCat("at most ", kMaxProfileBytes));
  }
  const Json whole = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!whole.is_object()) return Invalid(origin, "text", "no JSON object", "a machine profile");
  MeasuredProfile measured;
  NamedProfile& profile = measured.profile;
  profile.source = ProfileSource::kCalibrated;
  PENSTOCK_RETURN_IF_ERROR(ReadText(whole, origin, "name", profile.name));
  PENSTOCK_RETURN_IF_ERROR(ReadText(whole, origin, "card", profile.card));
  PENSTOCK_RETURN_IF_ERROR(ReadText(whole, origin, "identity", measured.identity));
  PENSTOCK_RETURN_IF_ERROR(
      ReadBytes(whole, origin, "device_memory_bytes", profile.device_memory_bytes));
  PENSTOCK_RETURN_IF_ERROR(
      ReadBytes(whole, origin, "host_memory_bytes", profile.host_memory_bytes));
  PENSTOCK_RETURN_IF_ERROR(
      ReadNumber(whole, origin, "datasheet_flops", true, profile.datasheet_flops));
  PENSTOCK_RETURN_IF_ERROR(
      ReadNumber(whole, origin, "measuring_seconds", true, measured.measuring_seconds));
  PENSTOCK_RETURN_IF_ERROR(ReadNumbers<MachineProfile>(whole, origin, "rates", kRates,
                                                       /*zero_allowed=*/false, profile.rates));
  PENSTOCK_RETURN_IF_ERROR(ReadNumbers<PowerDraw>(whole, origin, "watts", kWatts,
                                                  /*zero_allowed=*/true, profile.power));
  return measured;
}

}  // namespace penstock
