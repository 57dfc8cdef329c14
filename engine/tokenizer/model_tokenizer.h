// The tokenizer that belongs to a model: tokenizer.json of Hugging Face `tokenizers`, or a
// SentencePiece .model, with the special tokens that tokenizer_config.json names. Ids and
// spans are those of the reference libraries; what a file asks for and Penstock lacks is
// refused by name at Create(), never approximated.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/text_span.h"
#include "engine/tokenizer/tokenizer.h"

namespace penstock {

struct AddedToken {
  int32_t id = 0;
  std::string content = {};
  bool single_word = false;  // matches only between non-word characters
  bool lstrip = false;       // takes the whitespace before it
  bool rstrip = false;       // takes the whitespace after it
  bool normalized = false;   // matches in normalized text
  bool special = false;      // Decode() can leave it out
};

struct NamedToken {
  int32_t id = 0;
  std::string content = {};
};

// What tokenizer_config.json and special_tokens_map.json say. A field that is null or absent
// has no value.
struct SpecialTokenNames {
  std::optional<NamedToken> bos = {};
  std::optional<NamedToken> eos = {};
  std::optional<NamedToken> pad = {};
  std::optional<NamedToken> unk = {};
  std::optional<bool> add_bos_token = {};
  std::optional<bool> add_eos_token = {};
};

// Contents of the files; an absent file is "".
struct TokenizerFiles {
  std::string directory = {};            // for messages
  std::string tokenizer_json = {};       // this or sentencepiece_model
  std::string sentencepiece_model = {};  // used only without tokenizer_json
  std::string tokenizer_config = {};
  std::string special_tokens_map = {};
  std::string added_tokens = {};  // used only with sentencepiece_model
};

// No larger file is read.
inline constexpr int64_t kMaxTokenizerFileBytes = int64_t{256} << 20;

class ModelTokenizer : public Tokenizer {
 public:
  // MODEL_UNSUPPORTED, naming the component, for what is not implemented; MODEL_INVALID for
  // files that are broken or contradict themselves.
  static absl::StatusOr<std::unique_ptr<ModelTokenizer>> Create(const TokenizerFiles& files);

  // EncodeWithSpans() without spans, appended to `ids`; faster. engine/base/utf8.h repairs
  // what is not UTF-8.
  virtual absl::Status EncodeIds(std::string_view text, const EncodeOptions& options,
                                 std::vector<int32_t>& ids) const = 0;

  // EncodeIds() with default options.
  absl::Status Encode(std::string_view text, std::vector<int32_t>& ids) const final;

  enum class SpecialIds : uint8_t { kKeep, kLeaveOut };
  // Ids that are in no vocabulary are left out, as the reference library does. The result is
  // always UTF-8: bytes that are not become U+FFFD.
  virtual std::string Decode(std::span<const int32_t> ids, SpecialIds special_ids) const = 0;

  virtual std::optional<int32_t> TokenToId(std::string_view token) const = 0;
  // As it stands in the vocabulary ("Ġthe" of a byte-level one).
  virtual std::optional<std::string> IdToToken(int32_t id) const = 0;

  // All added tokens, special or not, by ascending id.
  virtual std::span<const AddedToken> added_tokens() const = 0;
  virtual const SpecialTokenNames& special_tokens() const = 0;

  // EOS of special_tokens().
  std::optional<int32_t> end_of_document() const final;
};

}  // namespace penstock
