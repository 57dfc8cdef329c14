#include "engine/data/token_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/data/example_encoder.h"
#include "engine/data/hash.h"
#include "engine/data/temporary_file.h"
#include "engine/data/token_cache_builder.h"

namespace penstock {
namespace {

// Two passes over the files, one to know them and one to tokenize them, as one fraction.
class TwoPassProgress {
 public:
  TwoPassProgress(const std::vector<std::string>& paths, DataProgress progress)
      : progress_(std::move(progress)) {
    for (const std::string& path : paths) {
      struct stat info = {};
      if (stat(path.c_str(), &info) == 0) total_bytes_ += 2.0 * static_cast<double>(info.st_size);
    }
  }

  ReadProgress AsReadProgress() {
    return [this](int64_t new_bytes) { return Add(new_bytes); };
  }

  absl::Status Finish() { return progress_ ? progress_(1.0) : absl::OkStatus(); }

 private:
  absl::Status Add(int64_t new_bytes) {
    done_bytes_ += static_cast<double>(new_bytes);
    return progress_ ? progress_(std::min(1.0, done_bytes_ / std::max(1.0, total_bytes_)))
                     : absl::OkStatus();
  }

  DataProgress progress_;
  double total_bytes_ = 0;
  double done_bytes_ = 0;
};

void AddOptions(const DataSource& source, const ExampleEncoder& encoder, ContentHash& hash) {
  const auto add = [&](const auto& value) { hash.UpdateField(absl::StrCat(value)); };
  add(static_cast<int>(source.format));
  if (source.format == DataFormat::kText) {
    add(static_cast<int>(source.text_documents));
    add(encoder.TextFingerprint());
    return;
  }
  add(static_cast<int>(source.on_bad_row));
  add(source.max_bad_rows);
  if (source.format == DataFormat::kTokenIdsJsonl) return;
  add(encoder.Fingerprint());
  add(source.rows.format ? Fingerprint(*source.rows.format) : std::string("found"));
  add(source.rows.max_rows.value_or(0));
  for (const std::string& path : source.paths) {
    // What kind a file is may depend on its name.
    add(std::filesystem::path(path).extension().string());
  }
}

std::string CacheKey(const DataSource& source, const ExampleEncoder& encoder,
                     const std::vector<std::string>& content_hashes) {
  ContentHash hash;
  hash.UpdateField(absl::StrCat("penstock token cache ", kCacheVersion));
  AddOptions(source, encoder, hash);
  for (const std::string& content : content_hashes) hash.UpdateField(content);
  return hash.HexDigest();
}

template <typename T>
std::span<const T> Section(std::span<const std::byte> file, uint64_t offset, uint64_t count) {
  return {reinterpret_cast<const T*>(file.data() + offset), static_cast<size_t>(count)};
}

absl::Status CheckNotEmpty(const TokenCache& cache) {
  if (cache.documents() > 0) return absl::OkStatus();
  int64_t left_out = 0;
  for (const NoteKind kind : {NoteKind::kBadRow, NoteKind::kTooLong, NoteKind::kNothingToLearn}) {
    left_out += cache.NoteCount(kind);
  }
  std::string first;
  for (const SourceNote& note : cache.notes()) {
    if (note.kind == NoteKind::kFact) continue;
    first = absl::StrCat(ToText(note.location, cache.source_paths()), ": ", note.text);
    break;
  }
  return Error(
      absl::StatusCode::kInvalidArgument, reason::kDataInvalid,
      absl::StrCat("the data has no documents: ", cache.source_paths().size(),
                   " file(s), the first is ", cache.source_paths().front(), ", 0 rows used, ",
                   left_out, " left out", first.empty() ? "" : ", the first at ", first,
                   "; name files that hold text or rows"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TokenCache>> TokenCache::OpenOrBuild(const OpenArgs& args) {
  PENSTOCK_RETURN_IF_ERROR(Validate(args.source));
  std::error_code error;
  std::filesystem::create_directories(args.directory, error);
  if (error) {
    return Error(absl::StatusCode::kInternal, reason::kIoError,
                 absl::StrCat("cannot make the token cache directory ", args.directory, ": ",
                              error.message(), "; configure one that is writable"));
  }
  // At every open: what a process killed while it committed left lies beside a whole cache.
  TemporaryFile::RemoveStale(args.directory);
  TwoPassProgress progress(args.source.paths, args.progress);
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> hashes,
                            HashFiles(args.source.paths, progress.AsReadProgress()));
  const std::string key = CacheKey(args.source, *args.encoder, hashes);
  const std::string path = absl::StrCat(args.directory, "/", key, ".tokens");
  absl::StatusOr<std::shared_ptr<TokenCache>> cache = Open(path, key, args.source.paths);
  if (absl::IsNotFound(cache.status()) || absl::IsDataLoss(cache.status())) {
    const absl::Status missing = cache.status();
    PENSTOCK_RETURN_IF_ERROR(BuildTokenCache({.source = &args.source,
                                              .encoder = args.encoder,
                                              .threads = args.threads,
                                              .key = key,
                                              .content_hashes = hashes,
                                              .directory = args.directory,
                                              .path = path,
                                              .progress = progress.AsReadProgress()}));
    cache = Open(path, key, args.source.paths);
    if (cache.ok()) {
      (*cache)->origin_ = absl::IsNotFound(missing) ? Origin::kBuilt : Origin::kRebuilt;
      (*cache)->origin_detail_ = std::string(missing.message());
    }
  }
  if (!cache.ok()) return cache.status();
  PENSTOCK_RETURN_IF_ERROR(CheckNotEmpty(**cache));
  PENSTOCK_RETURN_IF_ERROR(progress.Finish());
  return std::shared_ptr<const TokenCache>(*std::move(cache));
}

absl::StatusOr<std::shared_ptr<TokenCache>> TokenCache::Open(
    const std::string& path, const std::string& key, std::vector<std::string> source_paths) {
  std::shared_ptr<TokenCache> cache(new TokenCache(path));
  cache->paths_ = std::move(source_paths);
  PENSTOCK_RETURN_IF_ERROR(cache->Map());
  PENSTOCK_RETURN_IF_ERROR(cache->Verify(key));
  return cache;
}

TokenCache::~TokenCache() {
  if (!file_.empty()) munmap(const_cast<std::byte*>(file_.data()), file_.size());
}

absl::Status TokenCache::Corrupt(const std::string& what) const {
  return Error(absl::StatusCode::kDataLoss, reason::kDataInvalid,
               absl::StrCat("token cache ", path_, ": ", what));
}

absl::Status TokenCache::Map() {
  const int fd = open(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return absl::NotFoundError(absl::StrCat("no file ", path_));
  if (fd < 0) return Corrupt(absl::StrCat("cannot open it: ", std::strerror(errno)));
  struct stat info = {};
  const bool fits = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                    info.st_size >= static_cast<int64_t>(sizeof(CacheHeader));
  void* data = fits ? mmap(nullptr, info.st_size, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
  close(fd);
  if (data == MAP_FAILED) {
    return Corrupt(absl::StrCat("has ", info.st_size, " bytes and cannot be mapped"));
  }
  file_ = {static_cast<const std::byte*>(data), static_cast<size_t>(info.st_size)};
  return absl::OkStatus();
}

absl::Status TokenCache::Verify(const std::string& key) {
  std::memcpy(&header_, file_.data(), sizeof(header_));
  if (std::memcmp(header_.magic, kCacheMagic, sizeof(kCacheMagic)) != 0 ||
      header_.version != kCacheVersion || header_.header_bytes != sizeof(header_)) {
    return Corrupt("not a token cache of this version");
  }
  if (header_.header_hash != HashOf(&header_, offsetof(CacheHeader, header_hash))) {
    return Corrupt("the header does not have its checksum");
  }
  if (std::string_view(header_.key, kHashDigits) != key) return Corrupt("it has another key");
  PENSTOCK_RETURN_IF_ERROR(ReadSections());
  ContentHash body;
  body.Update(file_.data() + sizeof(header_), static_cast<int64_t>(file_.size() - sizeof(header_)));
  if (body.HexDigest() != std::string_view(header_.body_hash, kHashDigits)) {
    return Corrupt("the body does not have its checksum");
  }
  return CheckDocuments();
}

absl::Status TokenCache::ReadSections() {
  const uint64_t body = file_.size() - sizeof(header_);
  // Counts are bounded by the file's size before any product, so none can overflow.
  if (header_.tokens > body / sizeof(int32_t) ||
      header_.documents > body / sizeof(CachedDocument) ||
      header_.mask_words > body / sizeof(uint64_t) || header_.notes_bytes > body) {
    return Corrupt("its counts do not fit its size");
  }
  const uint64_t ids_bytes = (header_.tokens + header_.tokens % 2) * sizeof(int32_t);
  const uint64_t documents_at = sizeof(header_) + ids_bytes;
  const uint64_t mask_at = documents_at + header_.documents * sizeof(CachedDocument);
  const uint64_t notes_at = mask_at + header_.mask_words * sizeof(uint64_t);
  const uint64_t words_wanted = (header_.tokens + 63) / 64;
  if (notes_at + header_.notes_bytes != file_.size() ||
      (header_.mask_words != 0 && header_.mask_words != words_wanted)) {
    return Corrupt("its counts do not fit its size");
  }
  ids_ = Section<int32_t>(file_, sizeof(header_), header_.tokens);
  documents_ = Section<CachedDocument>(file_, documents_at, header_.documents);
  mask_ = Section<uint64_t>(file_, mask_at, header_.mask_words);
  const std::span<const char> notes = Section<char>(file_, notes_at, header_.notes_bytes);
  return ReadNotes(std::string(notes.begin(), notes.end()));
}

absl::Status TokenCache::CheckDocuments() const {
  uint64_t last_end = 0;
  for (const CachedDocument& document : documents_) {
    if (document.end <= last_end || (document.location >> kLineBits) >= paths_.size()) {
      return Corrupt("its documents are out of order");
    }
    last_end = document.end;
  }
  if (last_end != header_.tokens) return Corrupt("its documents do not cover its tokens");
  const uint64_t largest = std::numeric_limits<int32_t>::max();
  if (header_.max_id > largest ||
      (header_.tokens > 0 && header_.max_id_document >= documents_.size())) {
    return Corrupt("its largest id is out of range");
  }
  const auto max = static_cast<int32_t>(header_.max_id);
  for (const int32_t id : ids_) {
    if (id < 0 || id > max) return Corrupt("an id is larger than the largest");
  }
  return absl::OkStatus();
}

absl::Status TokenCache::ReadNotes(const std::string& notes) {
  const auto files = static_cast<int64_t>(paths_.size());
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(notes, '\n', absl::SkipEmpty()))) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits('\t', 4));
    SourceNote note;
    int kind = 0;
    if (fields.size() != 5 || !absl::SimpleAtoi(fields[0], &kind) ||
        !absl::SimpleAtoi(fields[1], &note.location.file) ||
        !absl::SimpleAtoi(fields[2], &note.location.line) ||
        !absl::SimpleAtoi(fields[3], &note.column) || note.location.file < 0 ||
        note.location.file >= files || kind < 0 || kind >= kNoteKinds) {
      return Corrupt("its list of notes does not parse");
    }
    note.kind = static_cast<NoteKind>(kind);
    note.text = fields[4];
    notes_.push_back(std::move(note));
  }
  return absl::OkStatus();
}

SourceLocation TokenCache::Location(int64_t document) const {
  const uint64_t location = documents_[document].location;
  return {static_cast<int64_t>(location >> kLineBits), static_cast<int64_t>(location & kMaxLine)};
}

int64_t TokenCache::CountTrained(int64_t begin, int64_t end) const {
  if (mask_.empty() || begin >= end) return std::max<int64_t>(0, end - begin);
  int64_t count = 0;
  for (int64_t word = begin / 64; word <= (end - 1) / 64; ++word) {
    uint64_t bits = mask_[word];
    if (word == begin / 64) bits &= ~uint64_t{0} << (begin % 64);
    if (word == (end - 1) / 64) bits &= ~uint64_t{0} >> (63 - (end - 1) % 64);
    count += std::popcount(bits);
  }
  return count;
}

absl::Status CheckIdsFit(const TokenCache& cache, int64_t embedding_rows) {
  if (cache.max_id() < embedding_rows) return absl::OkStatus();
  const std::string where = ToText(cache.Location(cache.max_id_document()), cache.source_paths());
  return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid,
               absl::StrCat("token id ", cache.max_id(), " in the document at ", where,
                            " has no row in the model's embedding, which has ", embedding_rows,
                            " rows (ids 0..", embedding_rows - 1,
                            "); use the tokenizer of this model, or a model with at least ",
                            int64_t{cache.max_id()} + 1, " rows"),
               {{"token_id", absl::StrCat(cache.max_id())},
                {"embedding_rows", absl::StrCat(embedding_rows)},
                {"location", where}});
}

}  // namespace penstock
