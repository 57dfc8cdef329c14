#include "engine/tokenizer/model_tokenizer.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/tokenizer/json_tokenizer.h"
#include "engine/tokenizer/sentencepiece_tokenizer.h"

namespace penstock {

absl::StatusOr<std::unique_ptr<ModelTokenizer>> ModelTokenizer::Create(
    const TokenizerFiles& files) {
  if (!files.tokenizer_json.empty()) return JsonTokenizer::Create(files);
  if (!files.sentencepiece_model.empty()) return SentencePieceTokenizer::Create(files);
  return Error(absl::StatusCode::kInvalidArgument, reason::kModelInvalid,
               absl::StrCat(files.directory,
                            " has neither tokenizer.json nor tokenizer.model; "
                            "copy the model's tokenizer files there"));
}

absl::Status ModelTokenizer::Encode(std::string_view text, std::vector<int32_t>& ids) const {
  return EncodeIds(text, {}, ids);
}

std::optional<int32_t> ModelTokenizer::end_of_document() const {
  const std::optional<NamedToken>& eos = special_tokens().eos;
  if (!eos) return std::nullopt;
  return eos->id;
}

}  // namespace penstock
