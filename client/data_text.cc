#include "client/data_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/output.h"

namespace penstock::client {
namespace {

constexpr char kGreen[] = "\x1b[32m", kPlain[] = "\x1b[0m";
constexpr int64_t kBarWidth = 40;

std::string Percent(double part, double whole) {
  return absl::StrFormat("%.1f%%", whole > 0 ? 100 * part / whole : 0.0);
}

const char* Title(v1::DataNoteKind kind) {
  switch (kind) {
    case v1::DATA_NOTE_KIND_BAD_ROW:
      return "rows left out because they are broken";
    case v1::DATA_NOTE_KIND_TOO_LONG:
      return "rows left out because they are too long";
    case v1::DATA_NOTE_KIND_NOTHING_TO_LEARN:
      return "rows left out because nothing of them would be learned";
    case v1::DATA_NOTE_KIND_TRUNCATED:
      return "rows cut to the longest length allowed";
    default:
      return "notes";
  }
}

std::string SummaryText(const v1::InspectDataResponse& data) {
  Facts facts;
  facts.Add("Documents", absl::StrCat(data.documents()));
  facts.Add("Tokens", absl::StrCat(data.tokens()));
  facts.Add("Learned", absl::StrCat(data.learned_tokens(), " (",
                                    Percent(static_cast<double>(data.learned_tokens()),
                                            static_cast<double>(data.tokens())),
                                    " of the tokens)"));
  facts.Add("Rows per epoch", absl::StrCat(data.rows_per_epoch(), ", ",
                                           Percent(data.padding_fraction(), 1), " padding"));
  facts.Add("Steps per epoch", absl::StrCat(data.steps_per_epoch()));
  for (const std::string& line : data.setup()) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(Printable(line), absl::MaxSplits(": ", 1));
    facts.Add(parts.first, parts.second);
  }
  return facts.ToText();
}

std::string SharesText(const v1::InspectDataResponse& data) {
  if (data.datasets().empty()) return "";
  Table table({"DATASET", "WEIGHT", "DOCUMENTS", "TOKENS", "SHARE OF AN EPOCH"});
  for (const v1::DatasetShare& share : data.datasets()) {
    table.Add({share.name(), absl::StrFormat("%g", share.weight()), absl::StrCat(share.documents()),
               absl::StrCat(share.tokens()),
               Percent(static_cast<double>(share.rows_per_epoch()),
                       static_cast<double>(data.rows_per_epoch()))});
  }
  return absl::StrCat("\n", table.ToText());
}

std::string LengthsText(const v1::InspectDataResponse& data) {
  int64_t most = 1;
  for (const v1::LengthBucket& bucket : data.lengths()) {
    most = std::max(most, bucket.documents());
  }
  std::string text = "\nTokens of a document\n";
  for (const v1::LengthBucket& bucket : data.lengths()) {
    const int64_t bar = (bucket.documents() * kBarWidth + most - 1) / most;
    absl::StrAppendFormat(&text, "  up to %8d  %8d  %s\n", bucket.up_to_tokens(),
                          bucket.documents(), std::string(static_cast<size_t>(bar), '#'));
  }
  return text;
}

std::string NotesText(const v1::DataNotes& notes) {
  std::string text = absl::StrFormat("\n%d %s\n", notes.count(), Title(notes.kind()));
  for (const v1::DataNote& note : notes.first()) {
    absl::StrAppend(&text, "  ", Printable(note.location()), ": ", Printable(note.text()), "\n");
  }
  const int64_t more = notes.count() - notes.first_size();
  if (more > 0) absl::StrAppend(&text, "  and ", more, " more\n");
  return text;
}

// Control characters but line ends made harmless.
std::string PrintableLines(const std::string& text) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) lines.push_back(Printable(line));
  return absl::StrJoin(lines, "\n");
}

std::string ExampleText(const v1::DataExample& example, const DataPageStyle& style) {
  std::string text = absl::StrCat("\n--- ", Printable(example.location()), ": ", example.tokens(),
                                  " tokens, ", example.learned_tokens(), " of them learned\n");
  for (const v1::DataExample::Segment& segment : example.segments()) {
    const std::string shown = PrintableLines(segment.text());
    if (!segment.learned()) {
      absl::StrAppend(&text, shown);
    } else if (style.color) {
      absl::StrAppend(&text, kGreen, shown, kPlain);
    } else {
      absl::StrAppend(&text, "{+", shown, "+}");
    }
    if (style.ids) absl::StrAppend(&text, "\n  [", absl::StrJoin(segment.ids(), " "), "]\n");
  }
  absl::StrAppend(&text, "\n");
  if (example.omitted_tokens() > 0) {
    absl::StrAppend(&text, "... and ", example.omitted_tokens(), " more tokens\n");
  }
  return text;
}

}  // namespace

std::string DataPage(const v1::InspectDataResponse& data, const DataPageStyle& style) {
  std::string text = SummaryText(data);
  absl::StrAppend(&text, SharesText(data), LengthsText(data));
  for (const v1::DataNotes& notes : data.notes()) absl::StrAppend(&text, NotesText(notes));
  for (const v1::DataExample& example : data.examples()) {
    absl::StrAppend(&text, ExampleText(example, style));
  }
  return text;
}

}  // namespace penstock::client
