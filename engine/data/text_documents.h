// The documents of text files. One thread reads and cuts, several tokenize; what comes out is in
// the order of the file and does not depend on how many threads there are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/thread_pool.h"
#include "engine/data/example_encoder.h"
#include "engine/data/input_file.h"
#include "engine/data/source.h"

namespace penstock {

class TextReader {
 public:
  struct Args {
    const DataSource* source = nullptr;
    const ExampleEncoder* encoder = nullptr;
    ThreadPool* pool = nullptr;
    DocumentSink* sink = nullptr;
  };
  explicit TextReader(const Args& args) : args_(args) {}

  // DATA_INVALID, naming file and line, for text that the tokenizer does not take.
  absl::Status ReadFile(InputFile& file, int64_t file_index);

  // Given to the sink so far.
  int64_t documents() const { return documents_; }

 private:
  // A piece of a document, cut without regard to anything but its bytes.
  struct Piece {
    std::string text;
    SourceLocation location;  // of its first byte
    bool ends_document = false;
    // What became of it.
    absl::Status status;
    std::vector<int32_t> ids;
  };

  absl::Status ReadWholeFile(InputFile& file);
  absl::Status ReadParagraphs(InputFile& file);
  absl::Status Add(std::string_view text);
  absl::Status Cut(size_t bytes, bool ends_document);
  absl::Status EncodeGroup();
  absl::Status GiveOut(const Piece& piece);
  absl::Status Refuse(const Piece& piece) const;

  Args args_;
  std::string pending_;  // text of the open document that is in no piece yet
  SourceLocation pending_location_;
  std::vector<Piece> group_;
  int64_t group_bytes_ = 0;
  // Of the document that is being given out.
  SourceLocation start_;
  int64_t tokens_ = 0;
  int64_t documents_ = 0;
};

}  // namespace penstock
