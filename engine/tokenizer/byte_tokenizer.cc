#include "engine/tokenizer/tokenizer.h"

namespace penstock {

absl::Status ByteTokenizer::Encode(std::string_view text, std::vector<int32_t>& ids) const {
  ids.reserve(ids.size() + text.size());
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return absl::OkStatus();
}

}  // namespace penstock
