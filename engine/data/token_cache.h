// The token cache: a data source tokenized once, then mapped by every job that uses it.
//
// A cache file is named by its key, a hash of everything its content depends on: the format's
// version, the tokenizer, the chat template, the options and the *content* of the source's files.
// So a changed file or tokenizer never meets old ids, and a file copied elsewhere finds the cache
// again. Files are built under a temporary name and renamed; any number of processes may build the
// same one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/source.h"
#include "engine/data/token_cache_format.h"

namespace penstock {

// Called now and then with a fraction from 0 to 1 that never falls; a status that is not OK ends
// the work with it and leaves nothing behind. May be null.
using DataProgress = std::function<absl::Status(double fraction)>;

// Immutable once open; safe to share between threads.
class TokenCache {
 public:
  // kRebuilt: a file was there but did not verify; `origin_detail` says why.
  enum class Origin : uint8_t { kFound, kBuilt, kRebuilt };

  struct OpenArgs {
    DataSource source;
    const ExampleEncoder* encoder = nullptr;
    int threads = 1;        // share the work of building; how many changes no bit
    std::string directory;  // made if missing
    DataProgress progress = nullptr;
  };
  // Opens the cache of `source`, and builds it first if there is none that verifies. Verifying
  // reads the whole file: a flipped bit is found here and not by the model.
  // DATA_INVALID for bad data (see ReadDocuments) and for a source without any token.
  static absl::StatusOr<std::shared_ptr<const TokenCache>> OpenOrBuild(const OpenArgs& args);

  ~TokenCache();
  TokenCache(const TokenCache&) = delete;
  TokenCache& operator=(const TokenCache&) = delete;

  int64_t tokens() const { return static_cast<int64_t>(ids_.size()); }
  int64_t documents() const { return static_cast<int64_t>(documents_.size()); }
  // Ids of all documents, one after the other; document d is [Begin(d), End(d)), never empty.
  std::span<const int32_t> ids() const { return ids_; }
  int64_t Begin(int64_t document) const {
    return document == 0 ? 0 : static_cast<int64_t>(documents_[document - 1].end);
  }
  int64_t End(int64_t document) const { return static_cast<int64_t>(documents_[document].end); }
  SourceLocation Location(int64_t document) const;

  // Whether token t may be a label.
  bool Trained(int64_t token) const {
    return mask_.empty() || ((mask_[token / 64] >> (token % 64)) & 1) != 0;
  }
  bool AllTrained() const { return mask_.empty(); }
  // How many tokens of [begin, end) may be labels.
  int64_t CountTrained(int64_t begin, int64_t end) const;

  int32_t max_id() const { return static_cast<int32_t>(header_.max_id); }
  // The first document that has max_id().
  int64_t max_id_document() const { return static_cast<int64_t>(header_.max_id_document); }

  int64_t NoteCount(NoteKind kind) const {
    return static_cast<int64_t>(header_.note_counts[static_cast<int>(kind)]);
  }
  // The first of every kind, at most kMaxNotesListed.
  std::span<const SourceNote> notes() const { return notes_; }

  std::span<const std::string> source_paths() const { return paths_; }
  const std::string& path() const { return path_; }
  Origin origin() const { return origin_; }
  const std::string& origin_detail() const { return origin_detail_; }

 private:
  explicit TokenCache(std::string path) : path_(std::move(path)) {}
  // NotFound if there is no file, DataLoss if it does not verify.
  static absl::StatusOr<std::shared_ptr<TokenCache>> Open(const std::string& path,
                                                          const std::string& key,
                                                          std::vector<std::string> source_paths);
  absl::Status Map();
  absl::Status Verify(const std::string& key);
  absl::Status ReadSections();
  absl::Status CheckDocuments() const;
  absl::Status ReadNotes(const std::string& notes);
  absl::Status Corrupt(const std::string& what) const;

  std::string path_;
  std::vector<std::string> paths_;
  Origin origin_ = Origin::kFound;
  std::string origin_detail_;

  std::span<const std::byte> file_;  // the mapping, owned
  CacheHeader header_ = {};
  std::span<const int32_t> ids_;
  std::span<const CachedDocument> documents_;
  std::span<const uint64_t> mask_;
  std::vector<SourceNote> notes_;
};

inline constexpr int64_t kMaxNotesListed = 100;

// DATA_INVALID unless every id is a row of the embedding; names the id, where it stands and the
// number of rows. Rows that no id reaches are fine.
absl::Status CheckIdsFit(const TokenCache& cache, int64_t embedding_rows);

}  // namespace penstock
