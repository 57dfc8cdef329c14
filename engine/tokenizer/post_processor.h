// The "post_processor" of a tokenizer.json: puts tokens such as BOS around an encoded text, and
// takes the spaces at the ends of tokens out of their spans.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/config_fields.h"
#include "engine/tokenizer/model_tokenizer.h"

namespace penstock {

// How many spaces a token begins and ends with, in the form in which it is in the vocabulary.
struct TokenMargins {
  uint32_t leading = 0;
  uint32_t trailing = 0;
};

// "Ġ" and whitespace count.
TokenMargins MarginsOf(std::string_view token);

class PostProcessor {
 public:
  // Key `name` of the file. MODEL_UNSUPPORTED, by name, for a type that is not implemented.
  static absl::StatusOr<PostProcessor> Read(const ConfigFields& file, absl::string_view name);

  // Whether spans are trimmed at all.
  bool trims() const;

  // Works on the tokens from index `begin` of `encoding` on, which encode `text`. `spans` may be
  // empty: then ids alone are wanted. `margins` has an entry for each of these tokens if trims().
  void Apply(PostProcess mode, std::string_view text, std::vector<TokenMargins>& margins,
             size_t begin, Encoding& encoding) const;

  // The largest id that it adds, or -1.
  int32_t max_id() const;

 private:
  struct TrimSpans {
    bool first_keeps_one_space = false;  // the one that the pre-tokenizer put there
  };
  struct Surround {
    std::vector<int32_t> before = {};
    std::vector<int32_t> after = {};
  };

  static absl::StatusOr<Surround> ReadTemplate(const ConfigFields& fields);
  static absl::StatusOr<Surround> ReadClassification(const ConfigFields& fields);

  std::vector<std::variant<TrimSpans, Surround>> steps_;
};

}  // namespace penstock
