#include "engine/data/report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace penstock {
namespace {

void AddUnlabelled(const Dataset& dataset, DataReport& report) {
  for (int64_t d = 0; d < dataset.documents(); ++d) {
    const int64_t length = dataset.Length(d);
    if (dataset.LabelledTokens(d, 0, length) > 0) continue;
    report.one_token_documents += length == 1 ? 1 : 0;
    if (report.unlabelled_documents++ >= DataReport::kMaxUnlabelledListed) continue;
    report.unlabelled.push_back(
        {dataset.LocationText(d), length == 1 ? "one token" : "every label is -100"});
  }
}

void AppendNotes(const std::vector<DataReport::Note>& notes, int64_t count, std::string& text) {
  for (const DataReport::Note& note : notes) {
    absl::StrAppend(&text, "  ", note.location, ": ", note.text, "\n");
  }
  const int64_t more = count - static_cast<int64_t>(notes.size());
  if (more > 0) absl::StrAppend(&text, "  and ", more, " more\n");
}

}  // namespace

DataReport MakeDataReport(const BatchStream& stream) {
  const Dataset& dataset = stream.dataset();
  const BatchStream::Args& args = stream.args();
  DataReport report;
  report.documents = dataset.documents();
  report.tokens = dataset.tokens();
  report.labelled_tokens = dataset.labelled_tokens();
  report.windows = stream.windows();
  report.rows_per_epoch = stream.rows_per_epoch();
  report.rows_per_step = args.rows_per_micro_batch * args.micro_batches_per_step;
  report.steps_per_epoch = stream.steps_per_epoch();
  report.padding_fraction =
      1.0 - static_cast<double>(report.tokens) / (static_cast<double>(report.rows_per_epoch) *
                                                  static_cast<double>(args.sequence_length));
  AddUnlabelled(dataset, report);
  const TokenCache& cache = dataset.cache();
  report.skipped_rows = cache.skipped_rows();
  for (const SkippedRow& row : cache.skipped()) {
    report.skipped.push_back(
        {absl::StrCat(ToText(row.location, cache.source_paths()), ":", row.column), row.message});
  }
  return report;
}

std::string ToText(const DataReport& report) {
  std::string text = absl::StrFormat(
      "data: %d documents, %d tokens, %d labels\n"
      "packing: %d windows in %d rows per epoch, %.2f%% padding\n"
      "steps: %d rows per step, %d steps per epoch\n",
      report.documents, report.tokens, report.labelled_tokens, report.windows,
      report.rows_per_epoch, 100 * report.padding_fraction, report.rows_per_step,
      report.steps_per_epoch);
  if (report.unlabelled_documents > 0) {
    absl::StrAppend(&text, "without any label: ", report.unlabelled_documents, " documents, ",
                    report.one_token_documents, " of them of one token\n");
    AppendNotes(report.unlabelled, report.unlabelled_documents, text);
  }
  if (report.skipped_rows > 0) {
    absl::StrAppend(&text, "skipped: ", report.skipped_rows, " rows\n");
    AppendNotes(report.skipped, report.skipped_rows, text);
  }
  return text;
}

}  // namespace penstock
