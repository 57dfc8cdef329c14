// Dataset: the documents that one side of a job, training or evaluation, uses.
//
// Label rule, the only one: position p of a document has the label "token p + 1", unless p is the
// last position or token p + 1 is marked as context; those have none. So the first token of a
// document is never a label, nothing predicts across documents, and cutting a document into
// windows loses no label.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/token_cache.h"

namespace penstock {

// Immutable; safe to share between threads. Documents are numbered from 0 within the dataset.
class Dataset {
 public:
  // Tokens [begin, end) of the cache, all of one of its documents.
  struct Range {
    int64_t cache_document = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };

  // Every document of `cache`.
  static std::shared_ptr<const Dataset> All(std::shared_ptr<const TokenCache> cache);
  Dataset(std::shared_ptr<const TokenCache> cache, std::vector<Range> documents);

  int64_t documents() const { return static_cast<int64_t>(documents_.size()); }
  int64_t tokens() const { return tokens_; }
  // Sum of LabelledTokens() over all documents.
  int64_t labelled_tokens() const { return labelled_tokens_; }

  int64_t Length(int64_t document) const {
    return documents_[document].end - documents_[document].begin;
  }
  std::span<const int32_t> Ids(int64_t document) const {
    return cache_->ids().subspan(documents_[document].begin, Length(document));
  }
  // Whether position `position` of the document has a label, which then is the next token.
  bool HasLabel(int64_t document, int64_t position) const {
    const int64_t next = documents_[document].begin + position + 1;
    return next < documents_[document].end && cache_->Trained(next);
  }
  // How many positions of [start, start + length) have a label.
  int64_t LabelledTokens(int64_t document, int64_t start, int64_t length) const;
  bool AllTrained() const { return cache_->AllTrained(); }
  // "path:line" of the document.
  std::string LocationText(int64_t document) const;

  const TokenCache& cache() const { return *cache_; }

 private:
  std::shared_ptr<const TokenCache> cache_;
  std::vector<Range> documents_;
  int64_t tokens_ = 0;
  int64_t labelled_tokens_ = 0;
};

struct DatasetSplit {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> held_out;
};

// Holds documents out of training: each with probability `fraction`, drawn from (seed, number of
// the document); at least one, never all. A single document is cut instead: its last tokens,
// `fraction` of them, are the held-out document. REQUIRES: 0 < fraction < 1.
// DATA_INVALID, with the numbers, if either side would have no label.
absl::StatusOr<DatasetSplit> HoldOut(std::shared_ptr<const TokenCache> cache, double fraction,
                                     uint64_t seed);

struct JobDataArgs {
  DataSource train;
  // Evaluation data: files of their own (same format and rules as `train`), or a share of the
  // training documents, or neither.
  std::vector<std::string> evaluation_paths = {};
  double held_out_fraction = 0;
  uint64_t seed = 0;
  int64_t embedding_rows = 0;
  const Tokenizer* tokenizer = nullptr;
  std::string cache_directory;
  DataProgress progress = nullptr;
};

struct JobData {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> evaluation;  // null if none was asked for
};

// Opens (and tokenizes, if need be) what a job trains and evaluates on. Refuses data without any
// label and ids without an embedding row.
absl::StatusOr<JobData> OpenJobData(const JobDataArgs& args);

}  // namespace penstock
