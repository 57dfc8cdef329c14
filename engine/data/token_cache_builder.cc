// Ids are written as they come. What else grows with the data, the list of documents and the
// label mask, goes to files of its own and is copied behind the ids at the end.
#include "engine/data/token_cache_builder.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "engine/data/hash.h"
#include "engine/data/temporary_file.h"
#include "engine/data/token_cache.h"
#include "engine/data/token_cache_format.h"

namespace penstock {
namespace {

constexpr size_t kMaxNoteBytes = 1000;

// Collects one bit a token and writes none as long as all are set.
class MaskWriter {
 public:
  explicit MaskWriter(TemporaryFile spool) : spool_(std::move(spool)) {}

  absl::Status Append(std::span<const uint8_t> trained, int64_t count) {
    if (trained.empty() && !started_) {
      bits_ += count;
      return absl::OkStatus();
    }
    for (int64_t i = 0; i < count; ++i) {
      const bool set = trained.empty() || trained[i] != 0;
      if (!set && !started_) PENSTOCK_RETURN_IF_ERROR(Start());
      PENSTOCK_RETURN_IF_ERROR(AppendBit(set));
    }
    return absl::OkStatus();
  }

  absl::Status Finish() {
    return started_ && bits_ % 64 != 0 ? AppendWord(word_) : absl::OkStatus();
  }
  TemporaryFile& spool() { return spool_; }

 private:
  // The tokens so far were all labels.
  absl::Status Start() {
    started_ = true;
    for (int64_t i = 0; i < bits_ / 64; ++i) PENSTOCK_RETURN_IF_ERROR(AppendWord(~uint64_t{0}));
    word_ = (uint64_t{1} << (bits_ % 64)) - 1;
    return absl::OkStatus();
  }

  absl::Status AppendBit(bool set) {
    const int64_t bit = bits_++ % 64;
    if (!started_) return absl::OkStatus();
    word_ |= uint64_t{set} << bit;
    return bit == 63 ? AppendWord(std::exchange(word_, 0)) : absl::OkStatus();
  }

  absl::Status AppendWord(uint64_t word) {
    return spool_.Append(std::as_bytes(std::span(&word, 1)));
  }

  TemporaryFile spool_;
  bool started_ = false;
  int64_t bits_ = 0;
  uint64_t word_ = 0;
};

class CacheWriter final : public DocumentSink {
 public:
  CacheWriter(TemporaryFile file, TemporaryFile documents, TemporaryFile mask)
      : file_(std::move(file)), documents_(std::move(documents)), mask_(std::move(mask)) {}

  absl::Status Begin(const std::string& key) {
    std::memcpy(header_.magic, kCacheMagic, sizeof(header_.magic));
    header_.version = kCacheVersion;
    header_.header_bytes = sizeof(header_);
    std::memcpy(header_.key, key.data(), sizeof(header_.key));
    return file_.Append(std::as_bytes(std::span(&header_, 1)));  // the place; filled in last
  }

  absl::Status Append(std::span<const int32_t> ids, std::span<const uint8_t> trained) override {
    for (const int32_t id : ids) {
      if (id < 0) {
        return Error(absl::StatusCode::kInternal, reason::kInternal,
                     absl::StrCat("the tokenizer gave the negative id ", id));
      }
      if (static_cast<uint64_t>(id) > header_.max_id || header_.tokens == 0) {
        header_.max_id = static_cast<uint64_t>(id);
        header_.max_id_document = header_.documents;
      }
      ++header_.tokens;
    }
    PENSTOCK_RETURN_IF_ERROR(mask_.Append(trained, static_cast<int64_t>(ids.size())));
    return AppendBody(std::as_bytes(ids));
  }

  absl::Status EndDocument(const SourceLocation& start) override {
    const uint64_t line = std::min(static_cast<uint64_t>(start.line), kMaxLine);
    const CachedDocument document = {header_.tokens,
                                     static_cast<uint64_t>(start.file) << kLineBits | line};
    ++header_.documents;
    return documents_.Append(std::as_bytes(std::span(&document, 1)));
  }

  absl::Status Note(const SourceNote& note) override {
    const auto kind = static_cast<int>(note.kind);
    if (static_cast<int64_t>(header_.note_counts[kind]++) >= kMaxNotesListed) {
      return absl::OkStatus();
    }
    // A note is a line.
    std::string text = note.text.substr(0, kMaxNoteBytes);
    if (const size_t cut = FindInvalidUtf8(text); cut != std::string::npos) text.resize(cut);
    std::replace(text.begin(), text.end(), '\n', ' ');
    absl::StrAppend(&notes_, kind, "\t", note.location.file, "\t", note.location.line, "\t",
                    note.column, "\t", text, "\n");
    return absl::OkStatus();
  }

  absl::Status Finish(const std::string& path) {
    if (header_.tokens % 2 != 0) {
      const int32_t padding = 0;
      PENSTOCK_RETURN_IF_ERROR(AppendBody(std::as_bytes(std::span(&padding, 1))));
    }
    PENSTOCK_RETURN_IF_ERROR(AppendSpool(documents_));
    PENSTOCK_RETURN_IF_ERROR(mask_.Finish());
    header_.mask_words = static_cast<uint64_t>(mask_.spool().size()) / sizeof(uint64_t);
    PENSTOCK_RETURN_IF_ERROR(AppendSpool(mask_.spool()));
    header_.notes_bytes = notes_.size();
    PENSTOCK_RETURN_IF_ERROR(AppendBody(std::as_bytes(std::span(notes_))));
    const std::string digest = body_hash_.HexDigest();
    std::memcpy(header_.body_hash, digest.data(), sizeof(header_.body_hash));
    header_.header_hash = HashOf(&header_, offsetof(CacheHeader, header_hash));
    PENSTOCK_RETURN_IF_ERROR(file_.Overwrite(0, std::as_bytes(std::span(&header_, 1))));
    return file_.Commit(path);
  }

 private:
  absl::Status AppendBody(std::span<const std::byte> bytes) {
    body_hash_.Update(bytes.data(), static_cast<int64_t>(bytes.size()));
    return file_.Append(bytes);
  }

  absl::Status AppendSpool(TemporaryFile& spool) {
    std::vector<std::byte> buffer(kReadBytes);
    for (int64_t offset = 0; offset < spool.size();) {
      const int64_t count = std::min(spool.size() - offset, kReadBytes);
      const std::span<std::byte> part(buffer.data(), static_cast<size_t>(count));
      PENSTOCK_RETURN_IF_ERROR(spool.Read(offset, part));
      PENSTOCK_RETURN_IF_ERROR(AppendBody(part));
      offset += count;
    }
    return absl::OkStatus();
  }

  TemporaryFile file_;
  TemporaryFile documents_;
  MaskWriter mask_;
  std::string notes_;
  CacheHeader header_ = {};
  ContentHash body_hash_;
};

}  // namespace

absl::Status BuildTokenCache(const BuildTokenCacheArgs& args) {
  const auto create = [&](const char* part) {
    return TemporaryFile::Create(args.directory, absl::StrCat(args.key, part));
  };
  PENSTOCK_ASSIGN_OR_RETURN(TemporaryFile file, create(".tokens"));
  PENSTOCK_ASSIGN_OR_RETURN(TemporaryFile documents, create(".documents"));
  PENSTOCK_ASSIGN_OR_RETURN(TemporaryFile mask, create(".mask"));
  CacheWriter writer(std::move(file), std::move(documents), std::move(mask));
  PENSTOCK_RETURN_IF_ERROR(writer.Begin(args.key));
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::vector<std::string> hashes,
      ReadDocuments(*args.source,
                    {.encoder = args.encoder, .threads = args.threads, .progress = args.progress},
                    writer));
  for (size_t i = 0; i < hashes.size(); ++i) {
    if (hashes[i] == args.content_hashes[i]) continue;
    const std::string& path = args.source->paths[i];
    return Error(absl::StatusCode::kFailedPrecondition, reason::kDataInvalid,
                 absl::StrCat("data file ", path,
                              " changed while it was read; submit again when it is complete"),
                 {{"path", path}});
  }
  return writer.Finish(args.path);
}

}  // namespace penstock
