// The token cache file, version 2. Little-endian, as every machine that we run on.
//
//   header     CacheHeader
//   ids        int32 [tokens], zero-padded to a multiple of 8 bytes
//   documents  CachedDocument [documents], by rising `end`
//   mask       uint64 [mask_words]: bit t % 64 of word t / 64 is set if token t is a label;
//              no words at all if every token is
//   notes      text, one note a line: kind TAB file TAB line TAB column TAB text
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/data/source.h"

namespace penstock {

inline constexpr char kCacheMagic[8] = {'P', 'N', 'S', 'T', 'O', 'K', 'N', 'S'};
inline constexpr uint32_t kCacheVersion = 2;
inline constexpr int kHashDigits = 32;

struct CacheHeader {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;
  char key[kHashDigits];  // what the file was built from
  char body_hash[kHashDigits];
  uint64_t tokens;
  uint64_t documents;
  uint64_t mask_words;
  uint64_t notes_bytes;
  uint64_t note_counts[kNoteKinds];  // by NoteKind; may be more than the notes list
  uint64_t max_id;
  uint64_t max_id_document;  // the first that has it
  uint64_t header_hash;      // of all bytes before this field
};
static_assert(std::is_trivially_copyable_v<CacheHeader> && sizeof(CacheHeader) % 8 == 0);

struct CachedDocument {
  uint64_t end;       // index of the first token after it
  uint64_t location;  // file << 40 | line
};
inline constexpr int kLineBits = 40;
inline constexpr uint64_t kMaxLine = (uint64_t{1} << kLineBits) - 1;

}  // namespace penstock
