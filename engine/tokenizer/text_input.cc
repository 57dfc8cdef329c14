#include "engine/tokenizer/text_input.h"

#include <xxhash.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "engine/tokenizer/piece.h"

namespace penstock {

absl::Status CheckTextInput(std::string_view text) {
  if (static_cast<int64_t>(text.size()) > kMaxEncodeBytes) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid,
                 absl::StrCat("a text of ", text.size(), " bytes is more than the ",
                              kMaxEncodeBytes, " that are tokenized at once; split the document"));
  }
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid == std::string_view::npos) return absl::OkStatus();
  const auto byte = static_cast<unsigned char>(text[invalid]);
  return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid,
               absl::StrFormat("byte %d of the text (0x%02X) is not UTF-8; convert the file to "
                               "UTF-8",
                               invalid, byte));
}

std::string FingerprintOf(std::string_view scheme, std::string_view file,
                          const SpecialTokenNames& names) {
  const XXH128_hash_t hash = XXH3_128bits(file.data(), file.size());
  const int64_t eos = names.eos ? int64_t{names.eos->id} : -1;
  return absl::StrFormat("%s:%016x%016x:%d", std::string(scheme), hash.high64, hash.low64, eos);
}

}  // namespace penstock
