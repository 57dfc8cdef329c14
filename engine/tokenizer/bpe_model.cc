#include "engine/tokenizer/bpe_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "engine/tokenizer/byte_alphabet.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr size_t kMaxMerges = size_t{1} << 24;

absl::StatusOr<std::string> OptionalString(const ConfigFields& fields, absl::string_view key) {
  if (fields.Find(key) == nullptr) return std::string();
  return fields.String(key);
}

}  // namespace

absl::StatusOr<BpeModel> BpeModel::Read(const ConfigFields& model) {
  PENSTOCK_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Read(model, "vocab"));
  BpeModel bpe(std::move(vocabulary));
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<double> dropout,
                            model.OptionalNumber("dropout", 0, 1));
  if (dropout.value_or(0) > 0) {
    return model.Unsupported("dropout",
                             "is above 0, so that one text has many encodings; set it to null");
  }
  PENSTOCK_ASSIGN_OR_RETURN(bpe.ignore_merges_, model.Bool("ignore_merges", false));
  PENSTOCK_ASSIGN_OR_RETURN(bpe.byte_fallback_, model.Bool("byte_fallback", false));
  PENSTOCK_ASSIGN_OR_RETURN(bpe.fuse_unknown_, model.Bool("fuse_unk", false));
  PENSTOCK_ASSIGN_OR_RETURN(bpe.continuing_prefix_,
                            OptionalString(model, "continuing_subword_prefix"));
  PENSTOCK_ASSIGN_OR_RETURN(bpe.end_suffix_, OptionalString(model, "end_of_word_suffix"));
  if (model.Find("unk_token") != nullptr) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string unknown, model.String("unk_token"));
    bpe.unknown_ = bpe.vocabulary_.Find(unknown);
    if (!bpe.unknown_) return model.Wanted("unk_token", "a token of the model's vocab");
  }
  PENSTOCK_RETURN_IF_ERROR(bpe.ReadMerges(model));
  bpe.ReadByteTokens();
  return bpe;
}

absl::Status BpeModel::ReadMerges(const ConfigFields& model) {
  const json* merges = model.Find("merges");
  if (merges == nullptr || !merges->is_array()) return model.Wanted("merges", "a list");
  if (merges->size() > kMaxMerges) {
    return model.Invalid("merges", absl::StrCat("has ", merges->size(), " entries; at most ",
                                                kMaxMerges, " are taken"));
  }
  merges_.Reserve(merges->size());
  const bool as_text = !merges->empty() && merges->front().is_string();
  uint32_t rank = 0;
  for (const json& merge : *merges) {
    const auto invalid = [&] {
      return model.Invalid("merges", absl::StrCat("has ", ShortJson(merge), " as entry ", rank,
                                                  "; all entries must be \"a b\", or all must "
                                                  "be [\"a\", \"b\"]"));
    };
    if (as_text) {
      if (!merge.is_string()) return invalid();
      const auto& text = merge.get_ref<const std::string&>();
      if (text.rfind("#version", 0) == 0) continue;
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        return invalid();
      }
      const std::string_view view = text;
      PENSTOCK_RETURN_IF_ERROR(
          AddMerge(model, rank, view.substr(0, space), view.substr(space + 1)));
    } else {
      if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() ||
          !merge[1].is_string()) {
        return invalid();
      }
      PENSTOCK_RETURN_IF_ERROR(AddMerge(model, rank, merge[0].get_ref<const std::string&>(),
                                        merge[1].get_ref<const std::string&>()));
    }
    ++rank;
  }
  return absl::OkStatus();
}

absl::Status BpeModel::AddMerge(const ConfigFields& model, uint32_t rank, std::string_view left,
                                std::string_view right) {
  const auto missing = [&](std::string_view token) {
    return model.Invalid(
        "merges", absl::StrCat("needs the token ", ShortJson(std::string(token)), " in entry ",
                               rank, ", but the model's vocab lacks it"));
  };
  const std::optional<int32_t> left_id = vocabulary_.Find(left);
  if (!left_id) return missing(left);
  const std::optional<int32_t> right_id = vocabulary_.Find(right);
  if (!right_id || right.size() < continuing_prefix_.size()) return missing(right);
  std::string merged(left);
  merged += right.substr(continuing_prefix_.size());
  const std::optional<int32_t> merged_id = vocabulary_.Find(merged);
  if (!merged_id) return missing(merged);
  // Of a pair that is there twice, the later rank counts, as in the reference library.
  merges_.Add(*left_id, *right_id, rank, *merged_id);
  return absl::OkStatus();
}

void BpeModel::ReadByteTokens() {
  for (size_t byte = 0; byte < 256; ++byte) {
    spelled_bytes_[byte] = vocabulary_.Find(ByteCharacters()[byte]).value_or(-1);
    fallback_bytes_[byte] = vocabulary_.Find(absl::StrFormat("<0x%02X>", byte)).value_or(-1);
  }
}

bool BpeModel::CanTakeRawBytes() const {
  return continuing_prefix_.empty() && end_suffix_.empty() &&
         std::count(spelled_bytes_.begin(), spelled_bytes_.end(), -1) == 0;
}

std::optional<int32_t> BpeModel::WholeWord(std::string_view word) const {
  if (spelling_ == ByteSpelling::kSpelled) return vocabulary_.Find(word);
  std::string spelled;
  for (const char c : word) spelled += ByteCharacters()[static_cast<unsigned char>(c)];
  return vocabulary_.Find(spelled);
}

void BpeModel::Encode(std::string_view word, BpeScratch& scratch,
                      std::vector<WordToken>& tokens) const {
  if (word.empty()) return;
  if (ignore_merges_) {
    if (const std::optional<int32_t> id = WholeWord(word)) {
      tokens.push_back({*id, static_cast<uint32_t>(word.size())});
      return;
    }
  }
  scratch.Clear();
  if (spelling_ == ByteSpelling::kRaw) {
    StartWithBytes(word, scratch);
  } else {
    StartWithCharacters(word, scratch);
  }
  merges_.Apply(scratch);
  scratch.AppendTokens(tokens);
}

void BpeModel::StartWithBytes(std::string_view word, BpeScratch& scratch) const {
  for (const char c : word) scratch.Add(spelled_bytes_[static_cast<unsigned char>(c)], 1);
}

void BpeModel::StartWithCharacters(std::string_view word, BpeScratch& scratch) const {
  uint32_t unknown_bytes = 0;  // of an unknown token that is not written yet; 0: none
  const auto write_unknown = [&] {
    if (unknown_bytes > 0) scratch.Add(*unknown_, unknown_bytes);
    unknown_bytes = 0;
  };
  const bool plain = continuing_prefix_.empty() && end_suffix_.empty();
  std::string decorated;
  const char* const end = word.data() + word.size();
  for (const char* p = word.data(); p < end;) {
    const auto bytes = static_cast<uint32_t>(Utf8Length(*p));
    std::string_view character(p, bytes);
    if (!plain) {
      decorated.assign(p == word.data() ? "" : continuing_prefix_);
      decorated += character;
      if (p + bytes == end) decorated += end_suffix_;
      character = decorated;
    }
    p += bytes;
    if (const std::optional<int32_t> id = vocabulary_.Find(character)) {
      write_unknown();
      scratch.Add(*id, bytes);
      continue;
    }
    const auto fallback = [&](char c) { return fallback_bytes_[static_cast<unsigned char>(c)]; };
    if (byte_fallback_ &&
        std::all_of(character.begin(), character.end(), [&](char c) { return fallback(c) >= 0; })) {
      for (const char c : character) scratch.Add(fallback(c), 1);
      continue;  // an unknown token before it is written later still, as in the reference library
    }
    if (!unknown_) continue;
    if (!fuse_unknown_) write_unknown();
    unknown_bytes += bytes;
  }
  write_unknown();
}

}  // namespace penstock
