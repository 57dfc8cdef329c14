// Dataset: the documents that one side of a job, training or evaluation, uses.
//
// Label rule, the only one: position p of a document has the label "token p + 1", unless p is the
// last position or token p + 1 is marked as context; those have none. So the first token of a
// document is never a label, nothing predicts across documents, and cutting a document into
// windows loses no label.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/token_cache.h"

namespace penstock {

// Immutable; safe to share between threads. Documents are numbered from 0 within the dataset, part
// after part.
class Dataset {
 public:
  // Tokens [begin, end) of the cache, all of one of its documents.
  struct Range {
    int64_t cache_document = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };

  // What comes from one source, and so lies in one cache.
  struct Part {
    std::shared_ptr<const TokenCache> cache;
    std::vector<Range> documents = {};
    std::string name = {};  // for people
    double weight = 1;      // engine/data/mixture.h
  };

  // Every document of `cache`.
  static Part Whole(std::shared_ptr<const TokenCache> cache);
  static std::shared_ptr<const Dataset> All(std::shared_ptr<const TokenCache> cache);
  // Parts without documents are left out.
  explicit Dataset(std::vector<Part> parts);

  int64_t documents() const { return documents_; }
  int64_t tokens() const { return tokens_; }
  // Sum of LabelledTokens() over all documents.
  int64_t labelled_tokens() const { return labelled_tokens_; }

  int64_t Length(int64_t document) const {
    const Range& range = Find(document).range;
    return range.end - range.begin;
  }
  std::span<const int32_t> Ids(int64_t document) const {
    const Place place = Find(document);
    return place.cache.ids().subspan(place.range.begin, place.range.end - place.range.begin);
  }
  // Whether position `position` of the document has a label, which then is the next token.
  bool HasLabel(int64_t document, int64_t position) const {
    const Place place = Find(document);
    const int64_t next = place.range.begin + position + 1;
    return next < place.range.end && place.cache.Trained(next);
  }
  // How many positions of [start, start + length) have a label.
  int64_t LabelledTokens(int64_t document, int64_t start, int64_t length) const;
  bool AllTrained() const;
  // "path:line" of the document.
  std::string LocationText(int64_t document) const;

  std::span<const Part> parts() const { return parts_; }
  int64_t FirstDocument(int64_t part) const { return first_[part]; }

 private:
  struct Place {
    const TokenCache& cache;
    const Range& range;
  };
  Place Find(int64_t document) const {
    size_t part = 0;
    while (part + 1 < first_.size() && document >= first_[part + 1]) ++part;
    return {*parts_[part].cache, parts_[part].documents[document - first_[part]]};
  }

  std::vector<Part> parts_;
  std::vector<int64_t> first_;  // number of the first document of each part
  int64_t documents_ = 0;
  int64_t tokens_ = 0;
  int64_t labelled_tokens_ = 0;
};

struct DatasetSplit {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> held_out;
};

// What of every part is held out of training; one of the two is not 0.
struct HeldOutSize {
  // Each document with this probability, at least one, never all. A part of a single document is
  // cut instead: its last tokens, `fraction` of them, are the held-out document.
  double fraction = 0;
  // So many documents.
  int64_t documents = 0;
};

// Which documents those are is drawn from (seed, number of the document). REQUIRES: 0 < fraction <
// 1 or documents > 0; parts are Whole(). DATA_INVALID, with the numbers, if a part has too few
// documents or either side of it would have no label.
absl::StatusOr<DatasetSplit> HoldOut(std::vector<Dataset::Part> parts, HeldOutSize size,
                                     uint64_t seed);

struct JobDataArgs {
  std::vector<DatasetSource> train = {};  // at least one
  // Evaluation data: datasets of its own, or a share of the training documents, or neither.
  std::vector<DatasetSource> evaluation = {};
  HeldOutSize held_out = {};
  uint64_t seed = 0;
  int64_t embedding_rows = 0;
  const ExampleEncoder* encoder = nullptr;
  int threads = 1;
  // Of all datasets together: their lists lie in memory. ResourceExhausted beyond that.
  int64_t max_documents = std::numeric_limits<int64_t>::max();
  std::string cache_directory;
  DataProgress progress = nullptr;
};

// What a document takes in such a list.
inline constexpr int64_t kBytesPerListedDocument = sizeof(Dataset::Range);

struct JobData {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> evaluation;  // null if none was asked for
};

// Opens (and tokenizes, if need be) what a job trains and evaluates on. Refuses data without any
// label and ids without an embedding row.
absl::StatusOr<JobData> OpenJobData(const JobDataArgs& args);

}  // namespace penstock
