// The "decoder" of a tokenizer.json: from the tokens of ids back to text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/config_fields.h"

namespace penstock {

class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  virtual std::vector<std::string> Apply(std::vector<std::string> tokens) const = 0;
};

class Decoder {
 public:
  // Key `name` of the file. MODEL_UNSUPPORTED, by name, for a type that is not implemented.
  static absl::StatusOr<Decoder> Read(const ConfigFields& file, absl::string_view name);

  // The text of the tokens: valid UTF-8 if they are. Where the file has no decoder, the tokens
  // with spaces between them.
  std::string Decode(std::vector<std::string> tokens) const;

 private:
  std::vector<std::unique_ptr<const DecodeStep>> steps_;
  bool absent_ = false;
};

}  // namespace penstock
