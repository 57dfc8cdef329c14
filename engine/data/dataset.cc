#include "engine/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/data/hash.h"

namespace penstock {
namespace {

absl::Status Refuse(const std::string& message) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid, message);
}

absl::Status CheckLabels(const Dataset& dataset, const char* name) {
  if (dataset.labelled_tokens() > 0) return absl::OkStatus();
  return Refuse(absl::StrCat(
      "the ", name, " data has no label to learn: ", dataset.documents(), " document(s) with ",
      dataset.tokens(), " token(s); a document of n tokens has n - 1 labels, which makes ",
      dataset.tokens() - dataset.documents(),
      ", less those that its \"labels\" mark with -100, which leaves 0; give longer documents or "
      "mark fewer tokens"));
}

// A number in [0, 1) for each document.
double Draw(uint64_t seed, int64_t document) {
  const uint64_t bits = CounterRandom(seed, RandomStream::kHeldOut, 0, document);
  return std::ldexp(static_cast<double>(bits >> 11), -53);
}

absl::StatusOr<DatasetSplit> CutSingleDocument(std::shared_ptr<const TokenCache> cache,
                                               double fraction) {
  constexpr int64_t kLeastTokens = 2;  // one label
  const int64_t tokens = cache->tokens();
  if (tokens < 2 * kLeastTokens) {
    return Refuse(absl::StrCat("the data is one document of ", tokens,
                               " token(s), too short to hold out a part: both parts need ",
                               kLeastTokens,
                               " tokens for one label; give more data or set "
                               "validation_fraction to 0"));
  }
  const int64_t wanted = std::llround(fraction * static_cast<double>(tokens));
  const int64_t cut = tokens - std::clamp(wanted, kLeastTokens, tokens - kLeastTokens);
  return DatasetSplit{
      std::make_shared<const Dataset>(cache, std::vector<Dataset::Range>{{0, 0, cut}}),
      std::make_shared<const Dataset>(cache, std::vector<Dataset::Range>{{0, cut, tokens}})};
}

DatasetSplit SplitByDocument(std::shared_ptr<const TokenCache> cache, double fraction,
                             uint64_t seed) {
  std::vector<Dataset::Range> train, held_out;
  int64_t lowest = 0, highest = 0;  // which go to which side if a side would be empty
  for (int64_t d = 0; d < cache->documents(); ++d) {
    if (Draw(seed, d) < Draw(seed, lowest)) lowest = d;
    if (Draw(seed, d) >= Draw(seed, highest)) highest = d;
  }
  for (int64_t d = 0; d < cache->documents(); ++d) {
    const bool out = d == lowest || (d != highest && Draw(seed, d) < fraction);
    (out ? held_out : train).push_back({d, cache->Begin(d), cache->End(d)});
  }
  return {std::make_shared<const Dataset>(cache, std::move(train)),
          std::make_shared<const Dataset>(cache, std::move(held_out))};
}

absl::StatusOr<std::shared_ptr<const TokenCache>> OpenCache(const JobDataArgs& args,
                                                            std::vector<std::string> paths,
                                                            DataProgress progress) {
  DataSource source = args.train;
  source.paths = std::move(paths);
  PENSTOCK_ASSIGN_OR_RETURN(std::shared_ptr<const TokenCache> cache,
                            TokenCache::OpenOrBuild({.source = std::move(source),
                                                     .tokenizer = args.tokenizer,
                                                     .directory = args.cache_directory,
                                                     .progress = std::move(progress)}));
  PENSTOCK_RETURN_IF_ERROR(CheckIdsFit(*cache, args.embedding_rows));
  return cache;
}

// The part [begin, end] of a whole progress.
DataProgress Part(const DataProgress& whole, double begin, double end) {
  if (!whole) return nullptr;
  return [=](double fraction) { return whole(begin + fraction * (end - begin)); };
}

absl::Status CheckEvaluationChoice(const JobDataArgs& args) {
  const double fraction = args.held_out_fraction;
  if (!(fraction >= 0 && fraction < 1)) {  // also refuses NaN
    return Refuse(
        absl::StrCat("validation_fraction is ", fraction, ", 0 or more and less than 1 is wanted"));
  }
  if (fraction > 0 && !args.evaluation_paths.empty()) {
    return Refuse(absl::StrCat("both validation_fraction (", fraction, ") and ",
                               args.evaluation_paths.size(),
                               " validation path(s) are given; keep one of them"));
  }
  return absl::OkStatus();
}

}  // namespace

Dataset::Dataset(std::shared_ptr<const TokenCache> cache, std::vector<Range> documents)
    : cache_(std::move(cache)), documents_(std::move(documents)) {
  for (int64_t d = 0; d < this->documents(); ++d) {
    PENSTOCK_CHECK(Length(d) > 0, absl::StrCat("document ", d));
    tokens_ += Length(d);
    labelled_tokens_ += LabelledTokens(d, 0, Length(d));
  }
}

std::shared_ptr<const Dataset> Dataset::All(std::shared_ptr<const TokenCache> cache) {
  std::vector<Range> documents;
  documents.reserve(cache->documents());
  for (int64_t d = 0; d < cache->documents(); ++d) {
    documents.push_back({d, cache->Begin(d), cache->End(d)});
  }
  return std::make_shared<const Dataset>(std::move(cache), std::move(documents));
}

int64_t Dataset::LabelledTokens(int64_t document, int64_t start, int64_t length) const {
  const Range& range = documents_[document];
  const int64_t first = range.begin + start + 1;
  return cache_->CountTrained(first, std::min(first + length, range.end));
}

std::string Dataset::LocationText(int64_t document) const {
  return ToText(cache_->Location(documents_[document].cache_document), cache_->source_paths());
}

absl::StatusOr<DatasetSplit> HoldOut(std::shared_ptr<const TokenCache> cache, double fraction,
                                     uint64_t seed) {
  PENSTOCK_CHECK(fraction > 0 && fraction < 1, absl::StrCat(fraction));
  absl::StatusOr<DatasetSplit> split = cache->documents() == 1
                                           ? CutSingleDocument(std::move(cache), fraction)
                                           : SplitByDocument(std::move(cache), fraction, seed);
  if (!split.ok()) return split;
  PENSTOCK_RETURN_IF_ERROR(CheckLabels(*split->train, "training (after the held-out part)"));
  PENSTOCK_RETURN_IF_ERROR(CheckLabels(*split->held_out, "held-out validation"));
  return split;
}

absl::StatusOr<JobData> OpenJobData(const JobDataArgs& args) {
  PENSTOCK_RETURN_IF_ERROR(CheckEvaluationChoice(args));
  const bool own_files = !args.evaluation_paths.empty();
  PENSTOCK_ASSIGN_OR_RETURN(
      std::shared_ptr<const TokenCache> cache,
      OpenCache(args, args.train.paths, Part(args.progress, 0, own_files ? 0.5 : 1)));
  JobData data{Dataset::All(cache), nullptr};
  PENSTOCK_RETURN_IF_ERROR(CheckLabels(*data.train, "training"));
  if (args.held_out_fraction > 0) {
    PENSTOCK_ASSIGN_OR_RETURN(DatasetSplit split,
                              HoldOut(cache, args.held_out_fraction, args.seed));
    data = {std::move(split.train), std::move(split.held_out)};
  } else if (own_files) {
    PENSTOCK_ASSIGN_OR_RETURN(std::shared_ptr<const TokenCache> evaluation,
                              OpenCache(args, args.evaluation_paths, Part(args.progress, 0.5, 1)));
    data.evaluation = Dataset::All(std::move(evaluation));
    PENSTOCK_RETURN_IF_ERROR(CheckLabels(*data.evaluation, "validation"));
  }
  return data;
}

}  // namespace penstock
