#include "engine/base/status.h"
#include "engine/tokenizer/tokenizer.h"

namespace penstock {

absl::Status ByteTokenizer::Encode(std::string_view text, std::vector<int32_t>& ids) const {
  ids.reserve(ids.size() + text.size());
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return absl::OkStatus();
}

absl::Status ByteTokenizer::EncodeWithSpans(std::string_view text, const EncodeOptions&,
                                            Encoding& encoding) const {
  encoding = {};
  PENSTOCK_RETURN_IF_ERROR(Encode(text, encoding.ids));
  encoding.spans.reserve(text.size());
  for (int64_t i = 0; i < static_cast<int64_t>(text.size()); ++i) {
    encoding.spans.push_back({i, i + 1});
  }
  return absl::OkStatus();
}

}  // namespace penstock
