// Merging keeps the word as a linked list of symbols and the possible merges in a heap. A merge
// makes at most two new candidates, so n symbols cost O(n log n), be they one word of 10 MB. An
// entry of the heap may be out of date when it comes up; it is, unless the pair that now stands at
// its place still merges to the token that the entry names.
#include "engine/tokenizer/bpe_model.h"

#include <algorithm>
#include <functional>
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

uint64_t PairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

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
  rules_.reserve(merges->size());
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
  rules_[PairKey(*left_id, *right_id)] = {rank, *merged_id};
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
  scratch.symbols_.clear();
  if (spelling_ == ByteSpelling::kRaw) {
    StartWithBytes(word, scratch);
  } else {
    StartWithCharacters(word, scratch);
  }
  Merge(scratch);
  for (const BpeScratch::Symbol& symbol : scratch.symbols_) {
    if (symbol.bytes != 0) tokens.push_back({symbol.id, symbol.bytes});
  }
}

void BpeModel::StartWithBytes(std::string_view word, BpeScratch& scratch) const {
  scratch.symbols_.reserve(word.size());
  for (const char c : word) {
    scratch.symbols_.push_back({spelled_bytes_[static_cast<unsigned char>(c)], 1});
  }
}

void BpeModel::StartWithCharacters(std::string_view word, BpeScratch& scratch) const {
  std::vector<BpeScratch::Symbol>& symbols = scratch.symbols_;
  uint32_t unknown_bytes = 0;  // of an unknown token that is not written yet; 0: none
  const auto write_unknown = [&] {
    if (unknown_bytes > 0) symbols.push_back({*unknown_, unknown_bytes});
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
      symbols.push_back({*id, bytes});
      continue;
    }
    const auto fallback = [&](char c) { return fallback_bytes_[static_cast<unsigned char>(c)]; };
    if (byte_fallback_ &&
        std::all_of(character.begin(), character.end(), [&](char c) { return fallback(c) >= 0; })) {
      for (const char c : character) symbols.push_back({fallback(c), 1});
      continue;  // an unknown token before it is written later still, as in the reference library
    }
    if (!unknown_) continue;
    if (!fuse_unknown_) write_unknown();
    unknown_bytes += bytes;
  }
  write_unknown();
}

void BpeModel::Consider(BpeScratch& scratch, int32_t place) const {
  const BpeScratch::Symbol& symbol = scratch.symbols_[static_cast<size_t>(place)];
  if (symbol.next < 0) return;
  const int32_t right = scratch.symbols_[static_cast<size_t>(symbol.next)].id;
  const auto rule = rules_.find(PairKey(symbol.id, right));
  if (rule == rules_.end()) return;
  const uint64_t key = uint64_t{rule->second.rank} << 32 | static_cast<uint32_t>(place);
  scratch.queue_.push_back({key, rule->second.merged});
}

void BpeModel::Merge(BpeScratch& scratch) const {
  std::vector<BpeScratch::Symbol>& symbols = scratch.symbols_;
  std::vector<BpeScratch::Candidate>& queue = scratch.queue_;
  const auto count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[static_cast<size_t>(i)].previous = i - 1;
    symbols[static_cast<size_t>(i)].next = i + 1 < count ? i + 1 : -1;
  }
  queue.clear();
  for (int32_t i = 0; i < count; ++i) Consider(scratch, i);
  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  const auto push = [&](int32_t place) {
    const size_t before = queue.size();
    Consider(scratch, place);
    if (queue.size() > before) std::push_heap(queue.begin(), queue.end(), std::greater<>());
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const BpeScratch::Candidate best = queue.back();
    queue.pop_back();
    const auto place = static_cast<int32_t>(best.rank_and_place & 0xFFFFFFFF);
    BpeScratch::Symbol& left = symbols[static_cast<size_t>(place)];
    if (left.bytes == 0 || left.next < 0) continue;
    BpeScratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    const auto rule = rules_.find(PairKey(left.id, right.id));
    if (rule == rules_.end() || rule->second.merged != best.merged) continue;
    left.id = best.merged;
    left.bytes += right.bytes;
    left.next = right.next;
    right.bytes = 0;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = place;
    if (left.previous >= 0) push(left.previous);
    push(place);
  }
}

}  // namespace penstock
