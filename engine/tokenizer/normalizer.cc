#include "engine/tokenizer/normalizer.h"

#include <string>
#include <utility>

#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "engine/tokenizer/byte_alphabet.h"
#include "engine/tokenizer/components.h"
#include "engine/tokenizer/normal_form.h"
#include "engine/tokenizer/pattern.h"
#include "engine/tokenizer/rewrite.h"
#include "engine/tokenizer/unicode.h"

namespace penstock {
namespace {

// Rewrites character by character: `rewrite(c, encoded, out)` says in `out` what stands for c.
template <typename Rewrite>
Piece RewriteCharacters(const Piece& piece, TextArena& arena, Rewrite rewrite) {
  AlignedText& out = arena.New();
  out.text.reserve(piece.text.size());
  out.spans.reserve(piece.text.size());
  const char* const base = piece.text.data();
  std::string encoded;
  for (const char* p = base; p < base + piece.text.size();) {
    const auto begin = static_cast<size_t>(p - base);
    const char32_t c = NextUtf8(p);
    const auto end = static_cast<size_t>(p - base);
    encoded.clear();
    rewrite(c, piece.text.substr(begin, end - begin), encoded);
    if (!encoded.empty()) out.Append(encoded, arena.SpanOf(piece, begin, end));
  }
  return TextArena::Replaced(piece, out);
}

class NormalFormNormalizer final : public Normalizer {
 public:
  explicit NormalFormNormalizer(NormalForm form) : form_(form) {}
  absl::StatusOr<Piece> Apply(const Piece& piece, TextArena& arena) const override {
    return Normalize(form_, piece, arena);
  }

 private:
  NormalForm form_;
};

class LowercaseNormalizer final : public Normalizer {
 public:
  absl::StatusOr<Piece> Apply(const Piece& piece, TextArena& arena) const override {
    return RewriteCharacters(piece, arena, [](char32_t c, std::string_view, std::string& out) {
      AppendUtf8(LowercaseOf(c), out);
      if (c == 0x130) AppendUtf8(0x307, out);
    });
  }
};

class StripAccentsNormalizer final : public Normalizer {
 public:
  absl::StatusOr<Piece> Apply(const Piece& piece, TextArena& arena) const override {
    return RewriteCharacters(piece, arena, [](char32_t c, std::string_view text, std::string& out) {
      if (!IsMark(c)) out.assign(text);
    });
  }
};

class ByteLevelNormalizer final : public Normalizer {
 public:
  absl::StatusOr<Piece> Apply(const Piece& piece, TextArena& arena) const override {
    return SpellBytes(piece, arena);
  }
};

class StripNormalizer final : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  absl::StatusOr<Piece> Apply(const Piece& piece, TextArena& arena) const override {
    const char* begin = piece.text.data();
    const char* end = begin + piece.text.size();
    for (const char* p = begin; left_ && p < end && IsWhitespace(NextUtf8(p));) begin = p;
    for (const char* p = end; right_ && p > begin && IsWhitespace(PreviousUtf8(p));) end = p;
    Piece stripped = arena.Slice(piece, static_cast<size_t>(begin - piece.text.data()),
                                 static_cast<size_t>(end - piece.text.data()));
    stripped.origin = piece.origin;
    return stripped;
  }

 private:
  bool left_;
  bool right_;
};

class PrependNormalizer final : public Normalizer {
 public:
  explicit PrependNormalizer(std::string text) : text_(std::move(text)) {}
  absl::StatusOr<Piece> Apply(const Piece& piece, TextArena& arena) const override {
    return Prepend(text_, piece, arena);
  }

 private:
  std::string text_;
};

class ReplaceNormalizer final : public Normalizer {
 public:
  ReplaceNormalizer(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  absl::StatusOr<Piece> Apply(const Piece& piece, TextArena& arena) const override {
    return ReplaceAll(pattern_, content_, piece, arena);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

absl::StatusOr<std::unique_ptr<const Normalizer>> Make(const Component& component) {
  const ConfigFields& fields = component.fields;
  const std::string& type = component.type;
  const auto form = [](NormalForm f) { return std::make_unique<NormalFormNormalizer>(f); };
  if (type == "NFC") return form(NormalForm::kNfc);
  if (type == "NFD") return form(NormalForm::kNfd);
  if (type == "NFKC") return form(NormalForm::kNfkc);
  if (type == "NFKD") return form(NormalForm::kNfkd);
  if (type == "Lowercase") return std::make_unique<LowercaseNormalizer>();
  if (type == "StripAccents") return std::make_unique<StripAccentsNormalizer>();
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Strip") {
    PENSTOCK_ASSIGN_OR_RETURN(const bool left, fields.Bool("strip_left", true));
    PENSTOCK_ASSIGN_OR_RETURN(const bool right, fields.Bool("strip_right", true));
    return std::make_unique<StripNormalizer>(left, right);
  }
  if (type == "Prepend") {
    PENSTOCK_ASSIGN_OR_RETURN(std::string text, fields.String("prepend"));
    return std::make_unique<PrependNormalizer>(std::move(text));
  }
  if (type == "Replace") {
    PENSTOCK_ASSIGN_OR_RETURN(Pattern pattern, ReadPattern(component));
    PENSTOCK_ASSIGN_OR_RETURN(std::string content, fields.String("content"));
    return std::make_unique<ReplaceNormalizer>(std::move(pattern), std::move(content));
  }
  return UnknownComponent(component,
                          "NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, "
                          "Replace, ByteLevel and Sequence");
}

}  // namespace

absl::StatusOr<Normalizers> ReadNormalizers(const ConfigFields& file, absl::string_view name) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Component> components,
                            ReadComponents(file, name, "normalizers"));
  Normalizers normalizers;
  for (const Component& component : components) {
    PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<const Normalizer> normalizer, Make(component));
    normalizers.push_back(std::move(normalizer));
  }
  return normalizers;
}

absl::StatusOr<Piece> Apply(const Normalizers& normalizers, Piece piece, TextArena& arena) {
  for (const auto& normalizer : normalizers) {
    if (piece.text.empty()) break;
    PENSTOCK_ASSIGN_OR_RETURN(piece, normalizer->Apply(piece, arena));
  }
  return piece;
}

}  // namespace penstock
