#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/batch.h"
#include "engine/data/dataset.h"

namespace penstock {

// What became of the data: printed in the job's log before the first step, so that nothing is
// dropped, padded or without effect in silence.
struct DataReport {
  // A row or document, and why it is named here.
  struct Note {
    std::string location;  // "path:line" or "path:line:column"
    std::string text;
  };

  // A dataset of several, and its share of an epoch.
  struct Part {
    std::string name;
    double weight = 1;
    int64_t documents = 0;
    int64_t tokens = 0;
    int64_t own_rows = 0;    // of all its documents, each once
    int64_t epoch_rows = 0;  // of it in an epoch of the job
  };

  std::vector<Part> parts;  // empty for a single dataset of weight 1
  int64_t documents = 0;
  int64_t tokens = 0;
  int64_t labelled_tokens = 0;
  int64_t one_token_documents = 0;   // they have no label
  int64_t unlabelled_documents = 0;  // no label for any reason; includes those of one token
  int64_t windows = 0;
  int64_t rows_per_epoch = 0;
  int64_t rows_per_step = 0;
  int64_t steps_per_epoch = 0;
  double padding_fraction = 0;  // of the tokens of the rows of all documents, each once
  // What the sources have to say, by NoteKind: how often, and the first notes, at most
  // kMaxNotesListed of a source.
  struct Notes {
    int64_t count = 0;
    std::vector<Note> listed = {};
  };
  std::array<Notes, kNoteKinds> notes;
  std::vector<Note> unlabelled;  // the first of them, at most kMaxUnlabelledListed

  const Notes& Of(NoteKind kind) const { return notes[static_cast<int>(kind)]; }

  static constexpr int64_t kMaxUnlabelledListed = 20;
};

DataReport MakeDataReport(const BatchStream& stream);

// "rows left out because they are broken"; of no use for kFact.
std::string_view ToText(NoteKind kind);

// Several lines.
std::string ToText(const DataReport& report);

}  // namespace penstock
