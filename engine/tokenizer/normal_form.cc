// Most text is in normal form already, so a piece is first searched for characters that could
// change or be changed. Only the runs around those are decomposed and composed; the rest is copied.
//
// A change is what the reference library's iterators attach to a character: 0 if it replaces one
// of the old characters, 1 if it is added behind one, -n if it replaces n + 1 of them. Spans follow
// from that alone, even where reordering makes them odd, so it is kept exactly.
#include "engine/tokenizer/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/base/utf8.h"
#include "engine/tokenizer/unicode.h"

namespace penstock {
namespace {

struct Changed {
  char32_t c = 0;
  int64_t change = 0;
};

// No character from here on decomposes, composes or is reordered.
constexpr char32_t kNormalizedEnd = 0x30000;

constexpr char32_t kHangulBase = 0xAC00;
constexpr char32_t kHangulCount = 11172;
constexpr char32_t kLeadBase = 0x1100, kLeadCount = 19;
constexpr char32_t kVowelBase = 0x1161, kVowelCount = 21;
constexpr char32_t kTailBase = 0x11A7, kTailCount = 28;

int CombiningClass(char32_t c) {
  if (c < 0x300 || IsNormalizationInert(c)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

constexpr int kMaxDecomposed = 32;  // the longest has 18

// The full decomposition; returns its length.
int Decompose(char32_t c, bool compatibility, char32_t (&out)[kMaxDecomposed]) {
  out[0] = c;
  if (c < 0x80 || IsNormalizationInert(c)) return 1;
  utf8proc_int32_t buffer[kMaxDecomposed];
  int boundary = 0;
  const int options = UTF8PROC_DECOMPOSE | (compatibility ? UTF8PROC_COMPAT : 0);
  const auto length =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), buffer, kMaxDecomposed,
                              static_cast<utf8proc_option_t>(options), &boundary);
  if (length < 1 || length > kMaxDecomposed) return 1;
  for (int i = 0; i < length; ++i) out[i] = static_cast<char32_t>(buffer[i]);
  return static_cast<int>(length);
}

uint64_t PairKey(char32_t a, char32_t b) { return uint64_t{a} << 32 | b; }

struct Tables {
  absl::flat_hash_map<uint64_t, char32_t> pairs;  // what two characters compose to
  // Per form: characters before which, or at which, normalized text cannot just be copied.
  std::vector<bool> unsafe[4];
};

bool ComposesToItself(char32_t c) {
  utf8proc_int32_t buffer[kMaxDecomposed] = {static_cast<utf8proc_int32_t>(c)};
  char32_t parts[kMaxDecomposed];
  const int length = Decompose(c, /*compatibility=*/false, parts);
  std::copy(parts, parts + length, buffer);
  const auto composed = utf8proc_normalize_utf32(
      buffer, length, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  return composed == 1 && buffer[0] == static_cast<utf8proc_int32_t>(c);
}

// The pair that composes to `c`, whose full decomposition has more parts where its first
// character is itself composed.
void AddPair(char32_t c, Tables& tables) {
  char32_t parts[kMaxDecomposed];
  const int length = Decompose(c, /*compatibility=*/false, parts);
  if (length < 2 || !ComposesToItself(c)) return;
  utf8proc_int32_t buffer[kMaxDecomposed];
  std::copy(parts, parts + length, buffer);
  const auto rest = utf8proc_normalize_utf32(
      buffer, length - 1, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (rest != 1) return;
  tables.pairs[PairKey(static_cast<char32_t>(buffer[0]), parts[length - 1])] = c;
}

bool IsHangul(char32_t c) { return c >= kHangulBase && c < kHangulBase + kHangulCount; }

Tables MakeTables() {
  Tables tables;
  for (char32_t c = 0xA0; c < kNormalizedEnd; ++c) {
    if (!IsHangul(c) && !IsNormalizationInert(c)) AddPair(c, tables);
  }
  for (auto& unsafe : tables.unsafe) unsafe.resize(kCodePoints);
  const auto mark = [&](NormalForm form, char32_t c) {
    tables.unsafe[static_cast<int>(form)][c] = true;
  };
  for (char32_t c = 0x80; c < kNormalizedEnd; ++c) {
    char32_t parts[kMaxDecomposed];
    const bool reordered = CombiningClass(c) != 0;
    const bool canonical = Decompose(c, false, parts) > 1 || parts[0] != c;
    const bool compatible = Decompose(c, true, parts) > 1 || parts[0] != c;
    const bool vowel_or_tail = (c >= kVowelBase && c < kVowelBase + kVowelCount) ||
                               (c > kTailBase && c < kTailBase + kTailCount);
    if (reordered || canonical) mark(NormalForm::kNfd, c);
    if (reordered || canonical || compatible) mark(NormalForm::kNfkd, c);
    const bool composed = IsHangul(c) || !canonical || ComposesToItself(c);
    if (reordered || vowel_or_tail || !composed) mark(NormalForm::kNfc, c);
    if (reordered || vowel_or_tail || !composed || (compatible && !canonical)) {
      mark(NormalForm::kNfkc, c);
    }
    // Composed, but of parts that compatibility changes.
    if (canonical && compatible && !IsHangul(c)) {
      char32_t plain[kMaxDecomposed];
      const int length = Decompose(c, false, plain);
      const int other = Decompose(c, true, parts);
      if (length != other || !std::equal(plain, plain + length, parts)) {
        mark(NormalForm::kNfkc, c);
      }
    }
  }
  for (const auto& [key, c] : tables.pairs) {
    mark(NormalForm::kNfc, static_cast<char32_t>(key & 0xFFFFFFFF));
    mark(NormalForm::kNfkc, static_cast<char32_t>(key & 0xFFFFFFFF));
  }
  return tables;
}

const Tables& AllTables() {
  static const Tables* const tables = new Tables(MakeTables());  // never destroyed: no order
  return *tables;
}

// 0 if they don't compose.
char32_t Compose(char32_t a, char32_t b) {
  if (a >= kLeadBase && a < kLeadBase + kLeadCount && b >= kVowelBase &&
      b < kVowelBase + kVowelCount) {
    return kHangulBase + ((a - kLeadBase) * kVowelCount + (b - kVowelBase)) * kTailCount;
  }
  if (IsHangul(a) && (a - kHangulBase) % kTailCount == 0 && b > kTailBase &&
      b < kTailBase + kTailCount) {
    return a + (b - kTailBase);
  }
  const auto it = AllTables().pairs.find(PairKey(a, b));
  return it == AllTables().pairs.end() ? 0 : it->second;
}

std::vector<Changed> Decomposed(std::string_view run, bool compatibility) {
  std::vector<Changed> result;
  size_t sorted = 0;  // from here on, characters wait for their neighbours
  const auto sort_pending = [&] {
    std::stable_sort(result.begin() + static_cast<int64_t>(sorted), result.end(),
                     [](const Changed& a, const Changed& b) {
                       return CombiningClass(a.c) < CombiningClass(b.c);
                     });
    sorted = result.size();
  };
  for (const char* p = run.data(); p < run.data() + run.size();) {
    char32_t parts[kMaxDecomposed];
    const int length = Decompose(NextUtf8(p), compatibility, parts);
    for (int i = 0; i < length; ++i) {
      if (CombiningClass(parts[i]) == 0) sort_pending();
      result.push_back({parts[i], i == 0 ? 0 : 1});
    }
  }
  sort_pending();
  return result;
}

// Composes in place of the reference library's iterator: same order, same changes.
class Composer {
 public:
  explicit Composer(std::vector<Changed>& out) : out_(out) {}

  void Add(Changed next) {
    const int combining = CombiningClass(next.c);
    if (!has_starter_) {
      if (combining != 0) {
        out_.push_back(next);
      } else {
        SetStarter(next);
      }
      return;
    }
    const bool blocked = last_class_ >= 0 && last_class_ >= combining;
    if (!blocked) {
      if (const char32_t composed = Compose(starter_.c, next.c)) {
        starter_ = {composed, starter_.change + next.change - 1};
        return;
      }
    }
    if (combining == 0) {
      Flush();
      SetStarter(next);
      return;
    }
    waiting_.push_back(next);
    last_class_ = combining;
  }

  void Flush() {
    if (!has_starter_) return;
    out_.push_back(starter_);
    out_.insert(out_.end(), waiting_.begin(), waiting_.end());
    waiting_.clear();
    has_starter_ = false;
  }

 private:
  void SetStarter(Changed starter) {
    starter_ = starter;
    has_starter_ = true;
    last_class_ = -1;
  }

  std::vector<Changed>& out_;
  Changed starter_;
  bool has_starter_ = false;
  int last_class_ = -1;           // of the last of waiting_; -1: none
  std::vector<Changed> waiting_;  // marks that did not compose with the starter
};

// Appends `characters`, which replace the part of the piece that begins at `at`.
void AppendChanged(const std::vector<Changed>& characters, const Piece& piece, size_t at,
                   const TextArena& arena, AlignedText& out) {
  const std::string_view text = piece.text;
  for (const Changed& changed : characters) {
    CharSpan span = {piece.origin, piece.origin};
    if (changed.change > 0) {
      if (at > 0) span = arena.SpanOf(piece, at - 1, at);
    } else {
      if (at < text.size()) span = arena.SpanOf(piece, at, at + 1);
      for (int64_t i = changed.change; i <= 0 && at < text.size(); ++i) {
        at += static_cast<size_t>(Utf8Length(text[at]));
      }
    }
    std::string encoded;
    AppendUtf8(changed.c, encoded);
    out.Append(encoded, span);
  }
}

}  // namespace

Piece Normalize(NormalForm form, const Piece& piece, TextArena& arena) {
  const std::vector<bool>& unsafe = AllTables().unsafe[static_cast<int>(form)];
  const bool compatibility = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const char* const base = piece.text.data();
  const char* const end = base + piece.text.size();
  const auto offset = [base](const char* p) { return static_cast<size_t>(p - base); };
  AlignedText* out = nullptr;
  const char* copied = base;    // up to here the piece is in `out`
  const char* previous = base;  // the last safe character: marks behind it may compose with it
  for (const char* p = base; p < end;) {
    if (static_cast<unsigned char>(*p) < 0x80) {
      previous = p++;
      continue;
    }
    const char* const at = p;
    if (!unsafe[NextUtf8(p)]) {
      previous = at;
      continue;
    }
    while (p < end) {
      const char* next = p;
      if (!unsafe[NextUtf8(next)]) break;
      p = next;
    }
    const char* const begin = previous < copied ? at : previous;
    if (out == nullptr) out = &arena.New();
    arena.Copy(piece, offset(copied), offset(begin), *out);
    std::vector<Changed> characters =
        Decomposed({begin, static_cast<size_t>(p - begin)}, compatibility);
    if (compose) {
      std::vector<Changed> composed;
      Composer composer(composed);
      for (const Changed& changed : characters) composer.Add(changed);
      composer.Flush();
      characters = std::move(composed);
    }
    AppendChanged(characters, piece, offset(begin), arena, *out);
    copied = previous = p;
  }
  if (out == nullptr) return piece;
  arena.Copy(piece, offset(copied), piece.text.size(), *out);
  return TextArena::Replaced(piece, *out);
}

}  // namespace penstock
