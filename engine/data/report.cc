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

std::string LocationOf(const SourceNote& note, const Dataset::Part& part, const TokenCache& cache) {
  if (note.kind != NoteKind::kFact) {
    return absl::StrCat(ToText(note.location, cache.source_paths()), ":", note.column);
  }
  return part.name.empty() ? cache.source_paths()[0] : part.name;
}

void AddParts(const BatchStream& stream, DataReport& report) {
  const Dataset& dataset = stream.dataset();
  const std::span<const Dataset::Part> parts = dataset.parts();
  int64_t own_rows = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    const auto part = static_cast<int64_t>(p);
    DataReport::Part line{.name = parts[p].name,
                          .weight = parts[p].weight,
                          .documents = static_cast<int64_t>(parts[p].documents.size()),
                          .own_rows = stream.mixture().OwnRows(part),
                          .epoch_rows = stream.mixture().RowsInEpoch(part)};
    for (const Dataset::Range& range : parts[p].documents) line.tokens += range.end - range.begin;
    own_rows += line.own_rows;
    report.parts.push_back(std::move(line));
    const TokenCache& cache = *parts[p].cache;
    for (int kind = 0; kind < kNoteKinds; ++kind) {
      report.notes[kind].count += cache.NoteCount(static_cast<NoteKind>(kind));
    }
    for (const SourceNote& note : cache.notes()) {
      report.notes[static_cast<int>(note.kind)].listed.push_back(
          {LocationOf(note, parts[p], cache), note.text});
    }
  }
  if (parts.size() == 1 && parts[0].weight == 1) report.parts.clear();
  report.padding_fraction = 1.0 - static_cast<double>(report.tokens) /
                                      (static_cast<double>(own_rows) *
                                       static_cast<double>(stream.args().sequence_length));
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
  AddParts(stream, report);
  AddUnlabelled(dataset, report);
  return report;
}

std::string_view ToText(NoteKind kind) {
  switch (kind) {
    case NoteKind::kBadRow:
      return "rows left out because they are broken";
    case NoteKind::kTooLong:
      return "rows left out because they are too long";
    case NoteKind::kNothingToLearn:
      return "rows left out because nothing of them would be learned";
    case NoteKind::kTruncated:
      return "rows cut to the longest length allowed";
    case NoteKind::kFact:
      break;
  }
  return "facts";
}

std::string ToText(const DataReport& report) {
  std::string text = absl::StrFormat(
      "data: %d documents, %d tokens, %d labels\n"
      "packing: %d windows in %d rows per epoch, %.2f%% padding\n"
      "steps: %d rows per step, %d steps per epoch\n",
      report.documents, report.tokens, report.labelled_tokens, report.windows,
      report.rows_per_epoch, 100 * report.padding_fraction, report.rows_per_step,
      report.steps_per_epoch);
  for (const DataReport::Part& part : report.parts) {
    absl::StrAppendFormat(
        &text,
        "dataset %s: %d documents, %d tokens; weight %g: %d of its %d rows in "
        "every epoch, %.1f%% of the epoch\n",
        part.name, part.documents, part.tokens, part.weight, part.epoch_rows, part.own_rows,
        100.0 * static_cast<double>(part.epoch_rows) / static_cast<double>(report.rows_per_epoch));
  }
  if (report.unlabelled_documents > 0) {
    absl::StrAppend(&text, "without any label: ", report.unlabelled_documents, " documents, ",
                    report.one_token_documents, " of them of one token\n");
    AppendNotes(report.unlabelled, report.unlabelled_documents, text);
  }
  for (int i = 0; i < kNoteKinds; ++i) {
    const DataReport::Notes& notes = report.notes[i];
    const auto kind = static_cast<NoteKind>(i);
    if (notes.count == 0) continue;
    if (kind != NoteKind::kFact)
      absl::StrAppendFormat(&text, "%s: %d\n", ToText(kind), notes.count);
    AppendNotes(notes.listed, notes.count, text);
  }
  return text;
}

}  // namespace penstock
