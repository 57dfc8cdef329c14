#include "engine/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/data/hash.h"
#include "engine/data/mixture.h"

namespace penstock {
namespace {

absl::Status Refuse(const std::string& message) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid, message);
}

// Of every part: one without labels is a mistake, however many the others have.
absl::Status CheckLabels(const Dataset& dataset, const char* side) {
  for (const Dataset::Part& part : dataset.parts()) {
    int64_t tokens = 0, labels = 0;
    const auto documents = static_cast<int64_t>(part.documents.size());
    for (const Dataset::Range& range : part.documents) {
      tokens += range.end - range.begin;
      labels += part.cache->CountTrained(range.begin + 1, range.end);
    }
    if (labels > 0) continue;
    const std::string name = part.name.empty() ? "" : absl::StrCat(" of ", part.name);
    return Refuse(absl::StrCat(
        "the ", side, " data", name, " has no label to learn: ", documents, " document(s) with ",
        tokens, " token(s); a document of n tokens has n - 1 labels, which makes ",
        tokens - documents,
        ", less those marked as context (prompts, \"labels\" of -100), which leaves 0; give "
        "longer documents or mark fewer tokens"));
  }
  return absl::OkStatus();
}

absl::Status CheckNumber(int64_t documents, int64_t most) {
  if (documents <= most) return absl::OkStatus();
  return Error(absl::StatusCode::kResourceExhausted, reason::kHostMemoryInsufficient,
               absl::StrCat("the data has ", documents,
                            " documents or more, and memory is allowed "
                            "for a list of ",
                            most,
                            "; take fewer with max_rows, or allow more "
                            "memory"),
               {{"needed_bytes", absl::StrCat(documents * kBytesPerListedDocument)},
                {"usable_bytes", absl::StrCat(most * kBytesPerListedDocument)}});
}

// A number in [0, 1) for each document.
double Draw(uint64_t seed, int64_t document) {
  const uint64_t bits = CounterRandom(seed, RandomStream::kHeldOut, 0, document);
  return std::ldexp(static_cast<double>(bits >> 11), -53);
}

struct SplitRanges {
  std::vector<Dataset::Range> train, held_out;
};

absl::StatusOr<SplitRanges> CutSingleDocument(const TokenCache& cache, double fraction) {
  constexpr int64_t kLeastTokens = 2;  // one label
  const int64_t tokens = cache.tokens();
  if (tokens < 2 * kLeastTokens) {
    return Refuse(absl::StrCat("the data is one document of ", tokens,
                               " token(s), too short to hold out a part: both parts need ",
                               kLeastTokens,
                               " tokens for one label; give more data or set "
                               "validation_fraction to 0"));
  }
  const int64_t wanted = std::llround(fraction * static_cast<double>(tokens));
  const int64_t cut = tokens - std::clamp(wanted, kLeastTokens, tokens - kLeastTokens);
  return SplitRanges{{{0, 0, cut}}, {{0, cut, tokens}}};
}

SplitRanges SplitByDocument(const TokenCache& cache, double fraction, uint64_t seed) {
  SplitRanges split;
  int64_t lowest = 0, highest = 0;  // which go to which side if a side would be empty
  for (int64_t d = 0; d < cache.documents(); ++d) {
    if (Draw(seed, d) < Draw(seed, lowest)) lowest = d;
    if (Draw(seed, d) >= Draw(seed, highest)) highest = d;
  }
  for (int64_t d = 0; d < cache.documents(); ++d) {
    const bool out = d == lowest || (d != highest && Draw(seed, d) < fraction);
    (out ? split.held_out : split.train).push_back({d, cache.Begin(d), cache.End(d)});
  }
  return split;
}

absl::StatusOr<SplitRanges> SplitByNumber(const Dataset::Part& part, int64_t held_out,
                                          uint64_t seed) {
  const TokenCache& cache = *part.cache;
  if (held_out >= cache.documents()) {
    return Refuse(
        absl::StrCat("validation_documents is ", held_out, ", and ",
                     part.name.empty() ? "the data" : absl::StrCat("dataset ", part.name), " has ",
                     cache.documents(),
                     " document(s), of which at least one has to be left to train on; hold "
                     "out fewer, or a validation_fraction"));
  }
  std::vector<std::pair<double, int64_t>> order;
  for (int64_t d = 0; d < cache.documents(); ++d) order.emplace_back(Draw(seed, d), d);
  std::nth_element(order.begin(), order.begin() + held_out, order.end());
  const std::pair<double, int64_t> first_kept = order[static_cast<size_t>(held_out)];
  SplitRanges split;
  for (int64_t d = 0; d < cache.documents(); ++d) {
    const bool out = std::pair(Draw(seed, d), d) < first_kept;
    (out ? split.held_out : split.train).push_back({d, cache.Begin(d), cache.End(d)});
  }
  return split;
}

// The part [begin, end] of a whole progress.
DataProgress Share(const DataProgress& whole, double begin, double end) {
  if (!whole) return nullptr;
  return [=](double fraction) { return whole(begin + fraction * (end - begin)); };
}

// The datasets of one side, which have [begin, end] of the whole progress.
absl::StatusOr<std::vector<Dataset::Part>> OpenParts(const JobDataArgs& args,
                                                     const std::vector<DatasetSource>& datasets,
                                                     double begin, double end) {
  std::vector<Dataset::Part> parts;
  int64_t documents = 0;
  const double step = (end - begin) / static_cast<double>(datasets.size());
  for (const DatasetSource& dataset : datasets) {
    if (!(dataset.weight > 0 && dataset.weight <= kMaxWeight)) {  // also refuses NaN
      return Refuse(absl::StrCat("the weight of dataset ", dataset.name, " is ", dataset.weight,
                                 ", more than 0 and at most ", kMaxWeight, " is wanted"));
    }
    const double at = begin + step * static_cast<double>(parts.size());
    PENSTOCK_ASSIGN_OR_RETURN(
        std::shared_ptr<const TokenCache> cache,
        TokenCache::OpenOrBuild({.source = dataset.source,
                                 .encoder = args.encoder,
                                 .threads = args.threads,
                                 .directory = args.cache_directory,
                                 .progress = Share(args.progress, at, at + step)}));
    PENSTOCK_RETURN_IF_ERROR(CheckIdsFit(*cache, args.embedding_rows));
    documents += cache->documents();
    PENSTOCK_RETURN_IF_ERROR(CheckNumber(documents, args.max_documents));
    Dataset::Part part = Dataset::Whole(std::move(cache));
    part.name = dataset.name;
    part.weight = dataset.weight;
    parts.push_back(std::move(part));
  }
  return parts;
}

absl::Status CheckEvaluationChoice(const JobDataArgs& args) {
  const auto [fraction, documents] = args.held_out;
  if (!(fraction >= 0 && fraction < 1)) {  // also refuses NaN
    return Refuse(
        absl::StrCat("validation_fraction is ", fraction, ", 0 or more and less than 1 is wanted"));
  }
  if (documents < 0) {
    return Refuse(absl::StrCat("validation_documents is ", documents, ", 0 or more is wanted"));
  }
  if (int{fraction > 0} + int{documents > 0} + int{!args.evaluation.empty()} > 1) {
    return Refuse(absl::StrCat("of validation_fraction (", fraction, "), validation_documents (",
                               documents, ") and validation dataset(s) (", args.evaluation.size(),
                               ") more than one is given; keep one of them"));
  }
  return absl::OkStatus();
}

}  // namespace

Dataset::Dataset(std::vector<Part> parts) : parts_(std::move(parts)) {
  std::erase_if(parts_, [](const Part& part) { return part.documents.empty(); });
  for (const Part& part : parts_) {
    first_.push_back(documents_);
    documents_ += static_cast<int64_t>(part.documents.size());
  }
  for (int64_t d = 0; d < documents_; ++d) {
    PENSTOCK_CHECK(Length(d) > 0, absl::StrCat("document ", d));
    tokens_ += Length(d);
    labelled_tokens_ += LabelledTokens(d, 0, Length(d));
  }
}

Dataset::Part Dataset::Whole(std::shared_ptr<const TokenCache> cache) {
  Part part{.cache = std::move(cache)};
  part.documents.reserve(part.cache->documents());
  for (int64_t d = 0; d < part.cache->documents(); ++d) {
    part.documents.push_back({d, part.cache->Begin(d), part.cache->End(d)});
  }
  return part;
}

std::shared_ptr<const Dataset> Dataset::All(std::shared_ptr<const TokenCache> cache) {
  return std::make_shared<const Dataset>(std::vector<Part>{Whole(std::move(cache))});
}

bool Dataset::AllTrained() const {
  return std::all_of(parts_.begin(), parts_.end(),
                     [](const Part& part) { return part.cache->AllTrained(); });
}

int64_t Dataset::LabelledTokens(int64_t document, int64_t start, int64_t length) const {
  const Place place = Find(document);
  const int64_t first = place.range.begin + start + 1;
  return place.cache.CountTrained(first, std::min(first + length, place.range.end));
}

std::string Dataset::LocationText(int64_t document) const {
  const Place place = Find(document);
  return ToText(place.cache.Location(place.range.cache_document), place.cache.source_paths());
}

absl::StatusOr<DatasetSplit> HoldOut(std::vector<Dataset::Part> parts, HeldOutSize size,
                                     uint64_t seed) {
  const double fraction = size.fraction;
  PENSTOCK_CHECK((fraction > 0 && fraction < 1) != (size.documents > 0),
                 absl::StrCat(fraction, " ", size.documents));
  std::vector<Dataset::Part> held_out = parts;
  for (size_t p = 0; p < parts.size(); ++p) {
    const TokenCache& cache = *parts[p].cache;
    SplitRanges split;
    if (size.documents > 0) {
      PENSTOCK_ASSIGN_OR_RETURN(split, SplitByNumber(parts[p], size.documents, seed));
    } else if (cache.documents() == 1) {
      PENSTOCK_ASSIGN_OR_RETURN(split, CutSingleDocument(cache, fraction));
    } else {
      split = SplitByDocument(cache, fraction, seed);
    }
    parts[p].documents = std::move(split.train);
    held_out[p].documents = std::move(split.held_out);
  }
  DatasetSplit split{std::make_shared<const Dataset>(std::move(parts)),
                     std::make_shared<const Dataset>(std::move(held_out))};
  PENSTOCK_RETURN_IF_ERROR(CheckLabels(*split.train, "training (after the held-out part)"));
  PENSTOCK_RETURN_IF_ERROR(CheckLabels(*split.held_out, "held-out validation"));
  return split;
}

absl::StatusOr<JobData> OpenJobData(const JobDataArgs& args) {
  PENSTOCK_RETURN_IF_ERROR(CheckEvaluationChoice(args));
  const bool own_data = !args.evaluation.empty();
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<Dataset::Part> parts,
                            OpenParts(args, args.train, 0, own_data ? 0.5 : 1));
  JobData data{std::make_shared<const Dataset>(parts), nullptr};
  PENSTOCK_RETURN_IF_ERROR(CheckLabels(*data.train, "training"));
  if (args.held_out.fraction > 0 || args.held_out.documents > 0) {
    PENSTOCK_ASSIGN_OR_RETURN(DatasetSplit split,
                              HoldOut(std::move(parts), args.held_out, args.seed));
    data = {std::move(split.train), std::move(split.held_out)};
  } else if (own_data) {
    PENSTOCK_ASSIGN_OR_RETURN(parts, OpenParts(args, args.evaluation, 0.5, 1));
    data.evaluation = std::make_shared<const Dataset>(std::move(parts));
    PENSTOCK_RETURN_IF_ERROR(CheckLabels(*data.evaluation, "validation"));
  }
  return data;
}

}  // namespace penstock
