// What the readers of tokenizer.json's components share. Each component is an object with a
// "type"; a "Sequence" of them is read flat.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/model/config_fields.h"
#include "engine/tokenizer/pattern.h"

namespace penstock {

struct Component {
  std::string type;
  ConfigFields fields;
};

// The component under `name` and, if it is a Sequence, those in its list `members`, in order.
// Empty if it is absent or null. At most 64.
absl::StatusOr<std::vector<Component>> ReadComponents(const ConfigFields& parent,
                                                      absl::string_view name,
                                                      absl::string_view members);

// {"String": ..} or {"Regex": ..} under "pattern".
absl::StatusOr<Pattern> ReadPattern(const Component& component);

// A string of exactly one character, as UTF-8.
absl::StatusOr<std::string> ReadCharacter(const ConfigFields& fields, absl::string_view key);

// MODEL_UNSUPPORTED for a type that this Penstock does not implement, with those it does.
absl::Status UnknownComponent(const Component& component, absl::string_view known);

}  // namespace penstock
