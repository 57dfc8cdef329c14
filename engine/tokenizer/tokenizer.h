// Text to token ids. Tokenizer is the seam: who needs no more than the ids of a text and where they
// stand knows nothing else about one. engine/tokenizer/model_tokenizer.h is a model's own
// tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/text_span.h"

namespace penstock {

struct Encoding {
  std::vector<int32_t> ids = {};
  // Of each id, the bytes of the text that it stands for. Always whole characters: tokens that
  // share a character all have it in their spans. Empty for a token that the post-processor added.
  std::vector<TextSpan> spans = {};
};

// What text that spells a special token ("<|im_end|>") becomes.
enum class SpecialText : uint8_t {
  kToken,      // the special token, as in rendered chat templates
  kPlainText,  // ordinary tokens; added tokens that are not special still match
};

// Whether the file's post-processor adds its tokens, such as BOS. A rendered chat template has
// them already; raw text does not.
enum class PostProcess : uint8_t { kSkip, kAddTokens };

struct EncodeOptions {
  SpecialText special_text = SpecialText::kToken;
  PostProcess post_process = PostProcess::kSkip;
};

// Implementations are immutable after construction and may be used from several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of `text` to `ids`. A document of more than kEncodePieceBytes
  // (engine/data/source.h) arrives in several calls, cut after a line end where there is one;
  // no merge across such a cut is expected.
  virtual absl::Status Encode(std::string_view text, std::vector<int32_t>& ids) const = 0;

  // Replaces `encoding` by that of `text`. InvalidArgument / DATA_INVALID, with the byte offset,
  // if `text` is not what the tokenizer takes: a model's wants UTF-8.
  virtual absl::Status EncodeWithSpans(std::string_view text, const EncodeOptions& options,
                                       Encoding& encoding) const = 0;

  // One more than the largest id that Encode() gives. The model may have more rows.
  virtual int64_t vocab_size() const = 0;

  // Identity of the content: two tokenizers that could give different ids for the same text
  // have different fingerprints. Part of the token cache's key.
  virtual std::string fingerprint() const = 0;

  // The id to put after the last token of every document, if any.
  virtual std::optional<int32_t> end_of_document() const = 0;
};

// Ids 0-255 are the bytes themselves, 256 ends a document. Any bytes are text: UTF-8 is not
// asked for. A character's bytes each stand for themselves alone.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kEndOfDocument = 256;

  absl::Status Encode(std::string_view text, std::vector<int32_t>& ids) const override;
  absl::Status EncodeWithSpans(std::string_view text, const EncodeOptions& options,
                               Encoding& encoding) const override;
  int64_t vocab_size() const override { return kEndOfDocument + 1; }
  std::string fingerprint() const override { return "bytes/1"; }
  std::optional<int32_t> end_of_document() const override { return kEndOfDocument; }
};

}  // namespace penstock
