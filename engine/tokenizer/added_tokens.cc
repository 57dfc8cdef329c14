#include "engine/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "engine/tokenizer/unicode.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr size_t kMaxTokens = size_t{1} << 20;
constexpr size_t kMaxContentBytes = 1024;

absl::StatusOr<AddedToken> ReadToken(const ConfigFields& entry) {
  AddedToken token;
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t id, entry.Integer("id", 0, kMaxTokenId));
  token.id = static_cast<int32_t>(id);
  PENSTOCK_ASSIGN_OR_RETURN(token.content, entry.String("content"));
  PENSTOCK_ASSIGN_OR_RETURN(token.single_word, entry.Bool("single_word", false));
  PENSTOCK_ASSIGN_OR_RETURN(token.lstrip, entry.Bool("lstrip", false));
  PENSTOCK_ASSIGN_OR_RETURN(token.rstrip, entry.Bool("rstrip", false));
  PENSTOCK_ASSIGN_OR_RETURN(token.normalized, entry.Bool("normalized", true));
  PENSTOCK_ASSIGN_OR_RETURN(token.special, entry.Bool("special", false));
  if (token.content.size() > kMaxContentBytes) {
    return entry.Invalid("content", absl::StrCat("has ", token.content.size(), " bytes; at most ",
                                                 kMaxContentBytes, " are taken"));
  }
  return token;
}

bool WordBefore(std::string_view text, size_t at) {
  const char* p = text.data() + at;
  return at > 0 && IsWord(PreviousUtf8(p));
}

bool WordAfter(std::string_view text, size_t at) {
  const char* p = text.data() + at;
  return at < text.size() && IsWord(NextUtf8(p));
}

size_t WithoutSpaceBefore(std::string_view text, size_t at, size_t limit) {
  const char* p = text.data() + at;
  while (static_cast<size_t>(p - text.data()) > limit) {
    const char* previous = p;
    if (!IsWhitespace(PreviousUtf8(previous))) break;
    p = previous;
  }
  return static_cast<size_t>(p - text.data());
}

size_t WithoutSpaceAfter(std::string_view text, size_t at) {
  const char* p = text.data() + at;
  while (p < text.data() + text.size()) {
    const char* next = p;
    if (!IsWhitespace(NextUtf8(next))) break;
    p = next;
  }
  return static_cast<size_t>(p - text.data());
}

}  // namespace

absl::StatusOr<AddedTokens> AddedTokens::Read(const ConfigFields& file, absl::string_view key,
                                              const Vocabulary& vocabulary,
                                              const Normalizers& normalizers) {
  AddedTokens added;
  added.next_id_ = vocabulary.size();
  const json* list = file.Find(key);
  if (list != nullptr && !list->is_array()) return file.Wanted(key, "a list");
  const size_t count = list == nullptr ? 0 : list->size();
  if (count > kMaxTokens) {
    return file.Invalid(
        key, absl::StrCat("has ", count, " entries; at most ", kMaxTokens, " are taken"));
  }
  for (size_t i = 0; i < count; ++i) {
    const std::string where = absl::StrCat(file.where(), key, "[", i, "]");
    const json& entry = (*list)[i];
    if (!entry.is_object()) {
      return file.Invalid(
          key, absl::StrCat("has ", ShortJson(entry), " as entry ", i, "; an object is needed"));
    }
    PENSTOCK_RETURN_IF_ERROR(added.Add(ConfigFields(entry, absl::StrCat(where, ".")), vocabulary));
  }
  PENSTOCK_RETURN_IF_ERROR(added.BuildTries(normalizers, absl::StrCat(file.where(), key)));
  return added;
}

absl::Status AddedTokens::Add(const ConfigFields& entry, const Vocabulary& vocabulary) {
  PENSTOCK_ASSIGN_OR_RETURN(AddedToken token, ReadToken(entry));
  if (token.content.empty()) return absl::OkStatus();  // the reference library skips it too
  if (ids_.contains(token.content)) {
    return entry.Invalid(
        "content", absl::StrCat("is ", ShortJson(token.content), ", which an earlier entry has"));
  }
  const std::optional<int32_t> known = vocabulary.Find(token.content);
  const int64_t expected = known ? *known : next_id_;
  if (token.id != expected) {
    return entry.Invalid(
        "id", absl::StrCat("is ", token.id, " for ", ShortJson(token.content), ", which has id ",
                           expected, known ? " in the model's vocab" : " by its place in the list",
                           "; correct the file, or export the tokenizer again"));
  }
  if (!known) ++next_id_;
  Insert(std::move(token));
  return absl::OkStatus();
}

void AddedTokens::Insert(AddedToken token) {
  ids_.emplace(token.content, token.id);
  if (token.special) special_.emplace(token.content, true);
  tokens_.push_back(std::move(token));
}

absl::StatusOr<AddedTokens> AddedTokens::Create(std::vector<AddedToken> tokens,
                                                const std::string& where) {
  AddedTokens added;
  for (AddedToken& token : tokens) added.Insert(std::move(token));
  PENSTOCK_RETURN_IF_ERROR(added.BuildTries({}, where));
  return added;
}

absl::Status AddedTokens::BuildTries(const Normalizers& normalizers, const std::string& where) {
  std::sort(tokens_.begin(), tokens_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    index_of_id_.emplace(token.id, static_cast<int64_t>(i));
    std::string spelled = token.content;
    if (token.normalized) {
      TextArena arena(token.content);
      PENSTOCK_ASSIGN_OR_RETURN(const Piece piece, Apply(normalizers, arena.Whole(), arena));
      spelled = std::string(piece.text);
    }
    StringTrie& trie = token.normalized ? normalized_ : original_;
    if (!trie.Insert(spelled, static_cast<int64_t>(i))) {
      return Error(absl::StatusCode::kInvalidArgument, reason::kModelInvalid,
                   absl::StrCat(where, ": ", ShortJson(token.content), " (id ", token.id,
                                ") is empty, or equal to another token, once it is normalized"));
    }
    spelled_.push_back(std::move(spelled));
  }
  return absl::OkStatus();
}

// Whether a match counts. Moves its ends over the whitespace that the token takes, but not back
// over what an earlier match took.
bool AddedTokens::Accept(std::string_view text, SpecialText special_text, size_t free_from,
                         Match& match) const {
  const AddedToken& token = *match.token;
  if (special_text == SpecialText::kPlainText && token.special) return false;
  if (token.single_word && (WordBefore(text, match.begin) || WordAfter(text, match.end))) {
    return false;
  }
  if (token.lstrip) {
    const size_t limit = std::min(free_from, match.begin);
    match.begin = std::max(WithoutSpaceBefore(text, match.begin, limit), free_from);
    match.begin = std::min(match.begin, match.end);
  }
  if (token.rstrip) match.end = WithoutSpaceAfter(text, match.end);
  return true;
}

absl::Status AddedTokens::Split(Where where, SpecialText special_text, const Piece& piece,
                                TextArena& arena, OnPart on_part) const {
  const StringTrie& trie = where == Where::kOriginal ? original_ : normalized_;
  const std::string_view text = piece.text;
  // A token may begin with whitespace that the one before it took. The reference library then lets
  // the two overlap, and so does this.
  size_t free_from = 0;
  size_t search_from = 0;
  while (const auto found = trie.Search(text, search_from)) {
    search_from = found->end;
    Match match = {found->begin, found->end, &tokens_[static_cast<size_t>(found->value)]};
    if (!Accept(text, special_text, free_from, match)) continue;
    if (free_from < match.begin) {
      PENSTOCK_RETURN_IF_ERROR(on_part(arena.Slice(piece, free_from, match.begin), nullptr));
    }
    PENSTOCK_RETURN_IF_ERROR(on_part(arena.Slice(piece, match.begin, match.end), match.token));
    free_from = match.end;
  }
  if (free_from == text.size()) return absl::OkStatus();
  return on_part(arena.Slice(piece, free_from, text.size()), nullptr);
}

std::optional<int32_t> AddedTokens::Find(std::string_view content) const {
  const auto it = ids_.find(absl::string_view(content.data(), content.size()));
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

const std::string* AddedTokens::SpelledById(int32_t id) const {
  const auto it = index_of_id_.find(id);
  return it == index_of_id_.end() ? nullptr : &spelled_[static_cast<size_t>(it->second)];
}

bool AddedTokens::IsSpecial(std::string_view content) const {
  return special_.contains(absl::string_view(content.data(), content.size()));
}

}  // namespace penstock
