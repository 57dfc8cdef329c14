// The content of a SentencePiece .model file.
//
// Penstock reads these files itself: the packaged library brings along, and exports, an old copy
// of Protocol Buffers, so no process can hold it together with gRPC's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tokenizer/char_map.h"

namespace penstock {

struct SentencePiece {
  enum class Type : uint8_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,      // never found in plain text: <s>, </s>
    kUserDefined = 4,  // found wherever it stands
    kUnused = 5,
    kByte = 6,  // <0x00> to <0xFF>
  };

  std::string text = {};
  float score = 0;
  Type type = Type::kNormal;
};

// How text is rewritten before it is cut into pieces.
struct SentencePieceRewriting {
  CharMap char_map = {};
  bool add_dummy_prefix = true;          // a space before the text
  bool remove_extra_whitespaces = true;  // spaces at the ends, and all but one of a run
  bool escape_whitespaces = true;        // "▁" for a space
};

struct SentencePieceFile {
  enum class Algorithm : uint8_t { kUnigram = 1, kBpe = 2 };

  std::vector<SentencePiece> pieces = {};  // by id
  Algorithm algorithm = Algorithm::kUnigram;
  SentencePieceRewriting rewriting = {};
  bool byte_fallback = false;
  int32_t unknown_id = 0;
  // Of the special pieces; there need not be such pieces.
  std::string bos = "<s>";
  std::string eos = "</s>";
  std::string pad = "<pad>";
};

inline constexpr size_t kMaxSentencePieceFileBytes = size_t{64} << 20;
inline constexpr size_t kMaxSentencePieceBytes = 512;

// `name` is for messages. MODEL_INVALID for a file that is broken or contradicts itself,
// MODEL_UNSUPPORTED, by name, for what is not implemented. What comes back has one unknown piece,
// no piece twice, none that is empty or no UTF-8, finite scores, and all bytes if byte_fallback.
absl::StatusOr<SentencePieceFile> ReadSentencePieceFile(std::string_view content,
                                                        std::string_view name);

}  // namespace penstock
