// InspectData(): what a job would train on, without training.

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/data/batch.h"
#include "engine/data/mixture.h"
#include "engine/data/report.h"
#include "engine/engine.h"
#include "engine/train/job_encoding.h"
#include "engine/train/model_input.h"
#include "engine/train/usable_cores.h"

namespace penstock {
namespace {

constexpr int64_t kMaxShownTokens = 4096;  // of one example

// A row being parsed, rendered and tokenized, at the limits of all three.
constexpr int64_t kBytesPerThread = int64_t{256} << 20;

// What InspectOptions::host_memory_bytes comes to.
struct MemoryShare {
  int threads = 1;
  int64_t max_documents = 0;
};

MemoryShare ShareOf(int64_t host_memory_bytes, int threads) {
  if (host_memory_bytes == 0) return {threads, std::numeric_limits<int64_t>::max()};
  return {static_cast<int>(std::clamp<int64_t>(host_memory_bytes / kBytesPerThread, 1, threads)),
          host_memory_bytes / kBytesPerListedDocument};
}

absl::Status CheckMemory(const Dataset& dataset, int64_t sequence, int64_t host_memory_bytes) {
  if (host_memory_bytes == 0) return absl::OkStatus();
  std::vector<double> weights;
  for (const Dataset::Part& part : dataset.parts()) weights.push_back(part.weight);
  const int64_t windows = dataset.documents() + dataset.tokens() / sequence;
  const int64_t needed =
      dataset.documents() * kBytesPerListedDocument + MixturePeakBytes(windows, weights, sequence);
  if (needed <= host_memory_bytes) return absl::OkStatus();
  return Error(
      absl::StatusCode::kResourceExhausted, reason::kHostMemoryInsufficient,
      absl::StrCat("to order ", dataset.documents(), " documents takes ", needed,
                   " bytes, and looking at data may take ", host_memory_bytes,
                   " (inspection_memory_bytes of penstockd); take fewer with max_rows, "
                   "or allow more"),
      {{"needed_bytes", absl::StrCat(needed)}, {"usable_bytes", absl::StrCat(host_memory_bytes)}});
}

std::vector<LengthBucket> LengthsOf(const Dataset& dataset) {
  std::vector<LengthBucket> buckets;
  for (int64_t d = 0; d < dataset.documents(); ++d) {
    const int64_t length = dataset.Length(d);
    size_t bucket = 0;
    for (int64_t up_to = 16; up_to < length; up_to *= 2) ++bucket;
    while (buckets.size() <= bucket) buckets.push_back({.up_to = int64_t{16} << buckets.size()});
    ++buckets[bucket].documents;
    buckets[bucket].tokens += length;
  }
  return buckets;
}

InspectedExample Show(const Dataset& dataset, int64_t document, const JobEncoding& encoding) {
  const std::span<const int32_t> ids = dataset.Ids(document);
  const int64_t length = dataset.Length(document);
  InspectedExample example = {.location = dataset.LocationText(document),
                              .tokens = length,
                              .learned_tokens = dataset.LabelledTokens(document, 0, length),
                              .segments = {},
                              .omitted_tokens = std::max<int64_t>(0, length - kMaxShownTokens)};
  const auto learned = [&](int64_t t) { return t > 0 && dataset.HasLabel(document, t - 1); };
  const int64_t shown = length - example.omitted_tokens;
  for (int64_t begin = 0; begin < shown;) {
    int64_t end = begin + 1;
    while (end < shown && learned(end) == learned(begin)) ++end;
    const std::span<const int32_t> run = ids.subspan(begin, end - begin);
    example.segments.push_back({.learned = learned(begin),
                                .text = encoding.Decode(run),
                                .ids = std::vector<int32_t>(run.begin(), run.end())});
    begin = end;
  }
  return example;
}

}  // namespace

absl::StatusOr<DataInspection> InspectData(const TrainConfig& config,
                                           const InspectOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const ModelInput model, OpenModelInput(config));
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<JobEncoding> encoding,
                            JobEncoding::Create(config, model));
  const MemoryShare share =
      ShareOf(options.host_memory_bytes,
              config.compute_threads > 0 ? config.compute_threads : UsableCores());
  PENSTOCK_ASSIGN_OR_RETURN(const JobData data,
                            OpenJobData(config, model, *encoding,
                                        {.threads = share.threads,
                                         .progress = options.progress,
                                         .max_documents = share.max_documents}));
  const int64_t sequence = config.batch.sequence_length;
  PENSTOCK_RETURN_IF_ERROR(CheckMemory(*data.train, sequence, options.host_memory_bytes));
  // Where the planner is to choose: how rows are cut into micro-batches changes no row.
  const int64_t micro_batch =
      config.batch.micro_batch_tokens > 0 ? config.batch.micro_batch_tokens : sequence;
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::unique_ptr<BatchStream> stream,
      BatchStream::Create({.dataset = data.train,
                           .sequence_length = sequence,
                           .rows_per_micro_batch = micro_batch / sequence,
                           .micro_batches_per_step = config.batch.tokens_per_step / micro_batch,
                           .packing = config.data.packing,
                           .order = RowOrder::kShuffled,
                           .seed = config.seed}));
  DataInspection inspection = {.report = MakeDataReport(*stream),
                               .notes = encoding->notes(),
                               .lengths = LengthsOf(*data.train),
                               .examples = {}};
  if (data.evaluation != nullptr) {
    inspection.notes.push_back(absl::StrCat("evaluation: ", data.evaluation->documents(),
                                            " documents, ", data.evaluation->labelled_tokens(),
                                            " labels"));
  }
  const int64_t documents = data.train->documents();
  const int64_t examples = std::min(options.examples, documents);
  for (int64_t i = 0; i < examples; ++i) {
    // Spread over the data, the first document among them.
    inspection.examples.push_back(Show(*data.train, i * documents / examples, *encoding));
  }
  return inspection;
}

}  // namespace penstock
