#include "engine/tokenizer/sentencepiece_rewriter.h"

#include <optional>

#include "engine/base/utf8.h"

namespace penstock {
namespace {

// What stands at the head of the text, and what is written for it.
struct Chunk {
  size_t bytes = 0;
  std::string_view written = {};
};

Chunk NextChunk(const SentencePieceRewriting& rewriting, const StringTrie& protect,
                std::string_view text) {
  if (const auto found = protect.LongestAt(text, 0))
    return {found->end, text.substr(0, found->end)};
  if (const std::optional<CharMap::Rule> rule = rewriting.char_map.Longest(text)) {
    return {rule->bytes, rule->replacement};
  }
  const auto bytes = static_cast<size_t>(Utf8Length(text[0]));
  return {bytes, text.substr(0, bytes)};
}

}  // namespace

void RewriteForSentencePiece(const SentencePieceRewriting& rewriting, const StringTrie& protect,
                             DummyPrefix prefix, std::string_view text, uint32_t origin,
                             AlignedText& out) {
  const bool trim = rewriting.remove_extra_whitespaces;
  const std::string_view space = rewriting.escape_whitespaces ? kSpaceMark : " ";
  size_t at = 0;
  if (trim) {
    while (at < text.size()) {
      const Chunk chunk = NextChunk(rewriting, protect, text.substr(at));
      if (chunk.written != " ") break;
      at += chunk.bytes;
    }
  }
  if (at == text.size()) return;
  const auto span_of = [&](size_t begin, size_t end) {
    return CharSpan{origin + static_cast<uint32_t>(begin), origin + static_cast<uint32_t>(end)};
  };
  if (prefix == DummyPrefix::kYes) out.Append(space, span_of(at, at));
  bool after_space = trim;
  while (at < text.size()) {
    Chunk chunk = NextChunk(rewriting, protect, text.substr(at));
    const CharSpan span = span_of(at, at + chunk.bytes);
    at += chunk.bytes;
    std::string_view written = chunk.written;
    while (after_space && !written.empty() && written.front() == ' ') written.remove_prefix(1);
    if (written.empty()) continue;
    for (size_t i = 0; i < written.size(); ++i) {
      out.Append(written[i] == ' ' ? space : written.substr(i, 1), span);
    }
    after_space = trim && written.back() == ' ';
  }
  if (!trim) return;
  while (out.text.ends_with(space)) {
    out.text.resize(out.text.size() - space.size());
    out.spans.resize(out.text.size());
  }
}

}  // namespace penstock
