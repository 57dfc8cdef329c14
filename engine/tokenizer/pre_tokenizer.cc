#include "engine/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "engine/tokenizer/byte_alphabet.h"
#include "engine/tokenizer/components.h"
#include "engine/tokenizer/pattern.h"
#include "engine/tokenizer/rewrite.h"
#include "engine/tokenizer/split_pieces.h"
#include "engine/tokenizer/unicode.h"

namespace penstock {
namespace {

constexpr char kGpt2Words[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class SplitPreTokenizer final : public PreTokenizer {
 public:
  SplitPreTokenizer(Pattern pattern, SplitBehavior behavior, bool inverted)
      : pattern_(std::move(pattern)), behavior_(behavior), inverted_(inverted) {}

  absl::Status Split(const Piece& piece, TextArena& arena, PieceSink sink) const override {
    return SplitAtMatches(
        piece, arena, behavior_, inverted_,
        [&](Pattern::OnMatch on_match) { return pattern_.ForEachMatch(piece.text, on_match); },
        sink);
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool inverted_;
};

// Every character of a kind is a match of its own.
class CharacterPreTokenizer final : public PreTokenizer {
 public:
  CharacterPreTokenizer(bool (*is_match)(char32_t), SplitBehavior behavior)
      : is_match_(is_match), behavior_(behavior) {}

  absl::Status Split(const Piece& piece, TextArena& arena, PieceSink sink) const override {
    const auto matcher = [&](Pattern::OnMatch on_match) -> absl::Status {
      const char* const base = piece.text.data();
      for (const char* p = base; p < base + piece.text.size();) {
        const auto begin = static_cast<size_t>(p - base);
        if (!is_match_(NextUtf8(p))) continue;
        PENSTOCK_RETURN_IF_ERROR(on_match(begin, static_cast<size_t>(p - base)));
      }
      return absl::OkStatus();
    };
    return SplitAtMatches(piece, arena, behavior_, /*inverted=*/false, matcher, sink);
  }

 private:
  bool (*is_match_)(char32_t);
  SplitBehavior behavior_;
};

// \w+|[^\w\s]+ : runs of word characters, and runs of what is neither that nor space.
class WhitespacePreTokenizer final : public PreTokenizer {
 public:
  absl::Status Split(const Piece& piece, TextArena& arena, PieceSink sink) const override {
    enum class Kind : uint8_t { kSpace, kWord, kOther };
    const char* const base = piece.text.data();
    const char* const end = base + piece.text.size();
    const auto kind_at = [](const char*& p) {
      const char32_t c = NextUtf8(p);
      return IsWord(c) ? Kind::kWord : IsWhitespace(c) ? Kind::kSpace : Kind::kOther;
    };
    for (const char* p = base; p < end;) {
      const char* const begin = p;
      const Kind kind = kind_at(p);
      for (const char* next = p; next < end && kind_at(next) == kind;) p = next;
      if (kind == Kind::kSpace) continue;
      PENSTOCK_RETURN_IF_ERROR(sink(
          arena.Slice(piece, static_cast<size_t>(begin - base), static_cast<size_t>(p - base))));
    }
    return absl::OkStatus();
  }
};

class ByteLevelPreTokenizer final : public PreTokenizer {
 public:
  ByteLevelPreTokenizer(bool add_prefix_space, std::optional<Pattern> words, ByteSpelling spelling)
      : add_prefix_space_(add_prefix_space), words_(std::move(words)), spelling_(spelling) {}

  absl::Status Split(const Piece& piece, TextArena& arena, PieceSink sink) const override {
    const bool prefix = add_prefix_space_ && piece.text[0] != ' ';
    const Piece prefixed = prefix ? Prepend(" ", piece, arena) : piece;
    const auto emit = [&](const Piece& word) {
      return sink(spelling_ == ByteSpelling::kRaw ? word : SpellBytes(word, arena));
    };
    if (!words_) return emit(prefixed);
    return SplitAtMatches(
        prefixed, arena, SplitBehavior::kIsolated, /*inverted=*/false,
        [&](Pattern::OnMatch on_match) { return words_->ForEachMatch(prefixed.text, on_match); },
        emit);
  }

 private:
  bool add_prefix_space_;
  std::optional<Pattern> words_;
  ByteSpelling spelling_;
};

enum class PrependScheme : uint8_t { kFirst, kNever, kAlways };

class MetaspacePreTokenizer final : public PreTokenizer {
 public:
  MetaspacePreTokenizer(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)),
        scheme_(scheme),
        split_(split),
        space_(Pattern::Literal(" ")),
        mark_(Pattern::Literal(replacement_)) {}

  absl::Status Split(const Piece& piece, TextArena& arena, PieceSink sink) const override {
    PENSTOCK_ASSIGN_OR_RETURN(Piece marked, ReplaceAll(space_, replacement_, piece, arena));
    const bool prepend = scheme_ == PrependScheme::kAlways ||
                         (scheme_ == PrependScheme::kFirst && piece.origin == 0);
    if (prepend && marked.text.substr(0, replacement_.size()) != replacement_) {
      marked = Prepend(replacement_, marked, arena);
    }
    if (!split_) return sink(marked);
    return SplitAtMatches(
        marked, arena, SplitBehavior::kMergedWithNext, /*inverted=*/false,
        [&](Pattern::OnMatch on_match) { return mark_.ForEachMatch(marked.text, on_match); }, sink);
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
  Pattern space_;
  Pattern mark_;
};

using Made = std::unique_ptr<const PreTokenizer>;

absl::StatusOr<SplitBehavior> ReadBehavior(const ConfigFields& fields) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string name, fields.String("behavior"));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return fields.Wanted("behavior",
                       "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

absl::StatusOr<Made> MakeSplit(const Component& component) {
  PENSTOCK_ASSIGN_OR_RETURN(Pattern pattern, ReadPattern(component));
  PENSTOCK_ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(component.fields));
  PENSTOCK_ASSIGN_OR_RETURN(const bool inverted, component.fields.Bool("invert", false));
  return std::make_unique<SplitPreTokenizer>(std::move(pattern), behavior, inverted);
}

absl::StatusOr<Made> MakePunctuation(const ConfigFields& fields) {
  SplitBehavior behavior = SplitBehavior::kIsolated;
  if (fields.Find("behavior") != nullptr) {
    PENSTOCK_ASSIGN_OR_RETURN(behavior, ReadBehavior(fields));
  }
  return std::make_unique<CharacterPreTokenizer>(IsPunctuation, behavior);
}

absl::StatusOr<Made> MakeDigits(const ConfigFields& fields) {
  PENSTOCK_ASSIGN_OR_RETURN(const bool individual, fields.Bool("individual_digits", false));
  return std::make_unique<CharacterPreTokenizer>(
      IsNumeric, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
}

absl::StatusOr<Made> MakeByteLevel(const ConfigFields& fields, ByteSpelling spelling) {
  PENSTOCK_ASSIGN_OR_RETURN(const bool prefix, fields.Bool("add_prefix_space", true));
  PENSTOCK_ASSIGN_OR_RETURN(const bool use_regex, fields.Bool("use_regex", true));
  std::optional<Pattern> words;
  if (use_regex) {
    PENSTOCK_ASSIGN_OR_RETURN(words, Pattern::Regex(kGpt2Words, "ByteLevel's own pattern"));
  }
  return std::make_unique<ByteLevelPreTokenizer>(prefix, std::move(words), spelling);
}

absl::StatusOr<Made> MakeMetaspace(const ConfigFields& fields) {
  PENSTOCK_ASSIGN_OR_RETURN(std::string replacement, ReadCharacter(fields, "replacement"));
  PENSTOCK_ASSIGN_OR_RETURN(const bool split, fields.Bool("split", true));
  PENSTOCK_ASSIGN_OR_RETURN(const bool prefix, fields.Bool("add_prefix_space", true));
  PrependScheme scheme = PrependScheme::kAlways;
  if (fields.Find("prepend_scheme") != nullptr) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string name, fields.String("prepend_scheme"));
    if (name != "first" && name != "never" && name != "always") {
      return fields.Wanted("prepend_scheme", "first, never or always");
    }
    scheme = name == "first"   ? PrependScheme::kFirst
             : name == "never" ? PrependScheme::kNever
                               : PrependScheme::kAlways;
  }
  if (!prefix && scheme != PrependScheme::kNever) {
    return fields.Invalid("add_prefix_space",
                          "is false, which prepend_scheme contradicts; \"never\" is needed there");
  }
  return std::make_unique<MetaspacePreTokenizer>(std::move(replacement), scheme, split);
}

absl::StatusOr<Made> Make(const Component& component, ByteSpelling spelling) {
  const std::string& type = component.type;
  if (type == "Split") return MakeSplit(component);
  if (type == "ByteLevel") return MakeByteLevel(component.fields, spelling);
  if (type == "Metaspace") return MakeMetaspace(component.fields);
  if (type == "Digits") return MakeDigits(component.fields);
  if (type == "Punctuation") return MakePunctuation(component.fields);
  if (type == "Whitespace") return std::make_unique<WhitespacePreTokenizer>();
  if (type == "WhitespaceSplit") {
    return std::make_unique<CharacterPreTokenizer>(IsWhitespace, SplitBehavior::kRemoved);
  }
  return UnknownComponent(component,
                          "Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, "
                          "WhitespaceSplit and Sequence");
}

absl::Status SplitFrom(const PreTokenizers& pre_tokenizers, size_t stage, const Piece& piece,
                       TextArena& arena, PieceSink sink) {
  if (stage == pre_tokenizers.stages.size()) return sink(piece);
  const auto next = [&](const Piece& part) {
    return SplitFrom(pre_tokenizers, stage + 1, part, arena, sink);
  };
  return pre_tokenizers.stages[stage]->Split(piece, arena, next);
}

}  // namespace

absl::StatusOr<PreTokenizers> ReadPreTokenizers(const ConfigFields& file, absl::string_view name,
                                                ByteSpelling wanted) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Component> components,
                            ReadComponents(file, name, "pretokenizers"));
  const auto byte_levels =
      std::count_if(components.begin(), components.end(),
                    [](const Component& component) { return component.type == "ByteLevel"; });
  PreTokenizers result;
  if (byte_levels == 1 && components.back().type == "ByteLevel") result.spelling = wanted;
  for (const Component& component : components) {
    PENSTOCK_ASSIGN_OR_RETURN(Made made, Make(component, result.spelling));
    result.stages.push_back(std::move(made));
  }
  return result;
}

absl::Status Split(const PreTokenizers& pre_tokenizers, const Piece& piece, TextArena& arena,
                   PieceSink sink) {
  return SplitFrom(pre_tokenizers, 0, piece, arena, sink);
}

}  // namespace penstock
