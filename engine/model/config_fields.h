// Checked access to the members of a JSON object from a config file. Every error names the key,
// the value found and what is accepted. A member that is null counts as absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace penstock {

class ConfigFields {
 public:
  // `where` comes before keys in messages: "config.json: ". REQUIRES: object.is_object(), and
  // it outlives this.
  ConfigFields(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  // Null if absent.
  const nlohmann::json* Find(absl::string_view key) const;
  // Whether the key is written at all, be it null.
  bool Contains(absl::string_view key) const { return object_.contains(key); }

  absl::StatusOr<int64_t> Integer(absl::string_view key, int64_t min, int64_t max) const;
  absl::StatusOr<std::optional<int64_t>> OptionalInteger(absl::string_view key, int64_t min,
                                                         int64_t max) const;
  absl::StatusOr<double> Number(absl::string_view key, double min, double max) const;
  absl::StatusOr<std::optional<double>> OptionalNumber(absl::string_view key, double min,
                                                       double max) const;
  absl::StatusOr<bool> Bool(absl::string_view key, bool if_absent) const;
  absl::StatusOr<std::string> String(absl::string_view key) const;
  // The member as an object; nullopt if absent.
  absl::StatusOr<std::optional<ConfigFields>> OptionalObject(absl::string_view key) const;

  const nlohmann::json& object() const { return object_; }
  const std::string& where() const { return where_; }

  // InvalidArgument / MODEL_INVALID and Unimplemented / MODEL_UNSUPPORTED about one key.
  absl::Status Invalid(absl::string_view key, absl::string_view problem) const;
  absl::Status Unsupported(absl::string_view key, absl::string_view problem) const;
  // "key is <value>; <wanted>", or "key is missing; <wanted>".
  absl::Status Wanted(absl::string_view key, absl::string_view wanted) const;

 private:
  const nlohmann::json& object_;
  std::string where_;
};

// A value for a message: JSON text, cut at 60 characters.
std::string ShortJson(const nlohmann::json& value);

}  // namespace penstock
