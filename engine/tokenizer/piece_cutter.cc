#include "engine/tokenizer/piece_cutter.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "engine/base/utf8.h"

namespace penstock {
namespace {

using Type = SentencePiece::Type;

// Byte-pair encoding by scores. Any two neighbours whose texts together are a piece may merge; the
// best score goes first. User-defined pieces neither merge nor come from merging.
//
// The text is one word by the model, but nothing merges across two characters that stand side by
// side in no piece, such as a letter and the space behind it. What lies between two such places
// merges by itself: the result is the same, and the work is done in the processor's cache.
class BpeCutter final : public PieceCutter {
 public:
  BpeCutter(const SentencePieceFile& file, const StringTrie& user_defined)
      : user_defined_(user_defined), piece_count_(static_cast<int32_t>(file.pieces.size())) {
    std::vector<float> scores;
    for (size_t id = 0; id < file.pieces.size(); ++id) {
      const SentencePiece& piece = file.pieces[id];
      if (piece.type != Type::kNormal) continue;
      symbols_.emplace(piece.text, static_cast<int32_t>(id));
      scores.push_back(piece.score);
    }
    std::sort(scores.begin(), scores.end(), std::greater<>());
    scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
    for (size_t id = 0; id < file.pieces.size(); ++id) {
      const SentencePiece& piece = file.pieces[id];
      if (piece.type != Type::kNormal) continue;
      const auto rank =
          std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>());
      AddMerges(piece.text, static_cast<uint32_t>(rank - scores.begin()), static_cast<int32_t>(id));
    }
  }

  void Cut(std::string_view text, std::vector<WordToken>& tokens) const override {
    BpeScratch scratch;
    char32_t last = 0;  // of the characters in `scratch`
    for (size_t at = 0; at < text.size();) {
      if (const auto found = user_defined_.LongestAt(text, at)) {
        Merge(scratch, tokens);
        tokens.push_back(
            {static_cast<int32_t>(found->value), static_cast<uint32_t>(found->end - at)});
        at = found->end;
        continue;
      }
      const char* next = text.data() + at;
      const char32_t c = NextUtf8(next);
      const size_t end = static_cast<size_t>(next - text.data());
      if (!scratch.empty() && !neighbours_.contains(PairOf(last, c))) Merge(scratch, tokens);
      scratch.Add(Symbol(text.substr(at, end - at)), static_cast<uint32_t>(end - at));
      last = c;
      at = end;
    }
    Merge(scratch, tokens);
  }

 private:
  static uint64_t PairOf(char32_t left, char32_t right) { return uint64_t{left} << 32 | right; }

  // Empties `scratch`.
  void Merge(BpeScratch& scratch, std::vector<WordToken>& tokens) const {
    merges_.Apply(scratch);
    const size_t first = tokens.size();
    scratch.AppendTokens(tokens);
    scratch.Clear();
    for (size_t i = first; i < tokens.size(); ++i) {
      if (tokens[i].id >= piece_count_) tokens[i].id = kUnknown;
    }
  }

  int32_t Symbol(std::string_view text) const {
    const auto it = symbols_.find(absl::string_view(text.data(), text.size()));
    return it == symbols_.end() ? kUnknown : it->second;
  }

  // As Symbol(). A character that is no piece, but a part of one, has an id of its own.
  int32_t OperandOf(std::string_view text) {
    const bool character = text.size() == static_cast<size_t>(Utf8Length(text[0]));
    if (!character) return Symbol(text);
    const auto next = static_cast<int32_t>(piece_count_ + characters_);
    const auto [it, added] = symbols_.try_emplace(std::string(text), next);
    if (added) ++characters_;
    return it->second;
  }

  void AddMerges(std::string_view text, uint32_t rank, int32_t id) {
    const char* next = text.data();
    for (char32_t left = NextUtf8(next); next < text.data() + text.size();) {
      const char32_t right = NextUtf8(next);
      neighbours_.insert(PairOf(left, right));
      left = right;
    }
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if (IsUtf8Continuation(text[cut])) continue;
      const int32_t left = OperandOf(text.substr(0, cut));
      const int32_t right = OperandOf(text.substr(cut));
      if (left != kUnknown && right != kUnknown) merges_.Add(left, right, rank, id);
    }
  }

  const StringTrie& user_defined_;
  const int32_t piece_count_;
  int32_t characters_ = 0;
  absl::flat_hash_map<std::string, int32_t> symbols_;
  absl::flat_hash_set<uint64_t> neighbours_;  // characters side by side in a piece
  BpeMerges merges_;
};

// The cut with the greatest sum of scores, by dynamic programming. Sums are of the same precision
// as the library's, since equal sums decide.
class UnigramCutter final : public PieceCutter {
 public:
  explicit UnigramCutter(const SentencePieceFile& file) {
    float lowest = std::numeric_limits<float>::max();
    float highest = std::numeric_limits<float>::min();
    for (size_t id = 0; id < file.pieces.size(); ++id) {
      const SentencePiece& piece = file.pieces[id];
      scores_.push_back(piece.score);
      user_defined_.push_back(piece.type == Type::kUserDefined);
      if (piece.type == Type::kNormal) {
        lowest = std::min(lowest, piece.score);
        highest = std::max(highest, piece.score);
      }
      if (piece.type == Type::kNormal || piece.type == Type::kUserDefined) {
        pieces_.Insert(piece.text, static_cast<int64_t>(id));
      }
    }
    unknown_score_ = lowest - 10.0f;
    highest_score_ = highest;
  }

  void Cut(std::string_view text, std::vector<WordToken>& tokens) const override {
    // By where a piece ends: the last piece of the best cut of the text up to there.
    std::vector<Best> best(text.size() + 1);
    for (size_t begin = 0; begin < text.size();) {
      const float so_far = best[begin].score;
      const size_t next = begin + static_cast<size_t>(Utf8Length(text[begin]));
      const auto offer = [&](size_t end, int32_t id, double sum) {
        Best& other = best[end];
        if (other.bytes != 0 && !(sum > double{other.score})) return;
        other = {id, static_cast<uint32_t>(end - begin), static_cast<float>(sum)};
      };
      bool has_character = false;
      pieces_.ForEachAt(text, begin, [&](const StringTrie::Found& found) {
        const auto id = static_cast<int32_t>(found.value);
        offer(found.end, id, ScoreOf(id, found.end - begin) + so_far);
        if (found.end == next) has_character = true;
      });
      if (!has_character) offer(next, kUnknown, double{unknown_score_ + so_far});
      begin = next;
    }
    const size_t first = tokens.size();
    for (size_t end = text.size(); end > 0; end -= best[end].bytes) {
      tokens.push_back({best[end].id, best[end].bytes});
    }
    std::reverse(tokens.begin() + static_cast<ptrdiff_t>(first), tokens.end());
  }

 private:
  struct Best {
    int32_t id = kUnknown;
    uint32_t bytes = 0;  // 0: none yet
    float score = 0;
  };

  // User-defined pieces always win against what could stand in their place.
  double ScoreOf(int32_t id, size_t bytes) const {
    if (!user_defined_[static_cast<size_t>(id)]) return scores_[static_cast<size_t>(id)];
    return double{static_cast<float>(bytes) * highest_score_} - 0.1;
  }

  StringTrie pieces_;
  std::vector<float> scores_;
  std::vector<bool> user_defined_;
  float unknown_score_ = 0;
  float highest_score_ = 0;
};

}  // namespace

std::unique_ptr<const PieceCutter> PieceCutter::Create(const SentencePieceFile& file,
                                                       const StringTrie& user_defined) {
  if (file.algorithm == SentencePieceFile::Algorithm::kBpe) {
    return std::make_unique<BpeCutter>(file, user_defined);
  }
  return std::make_unique<UnigramCutter>(file);
}

}  // namespace penstock
