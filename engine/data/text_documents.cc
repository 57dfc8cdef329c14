#include "engine/data/text_documents.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "engine/data/line_reader.h"

namespace penstock {
namespace {

constexpr size_t kGroupPieces = 65536;

// Where to cut `text` so that a tokenizer notices it least: after a line end, else after a
// space, else between two code points. Never 0.
size_t PieceEnd(std::string_view text) {
  if (const size_t at = text.rfind('\n'); at != std::string_view::npos) return at + 1;
  if (const size_t at = text.rfind(' '); at != std::string_view::npos) return at + 1;
  const auto is_continuation = [&](size_t at) { return (text[at] & 0xC0) == 0x80; };
  size_t lead = text.size() - 1;
  for (int back = 0; back < 3 && lead > 0 && is_continuation(lead); ++back) --lead;
  return lead > 0 && (text[lead] & 0xC0) == 0xC0 ? lead : text.size();
}

bool IsBlank(std::string_view line) {
  return std::all_of(line.begin(), line.end(),
                     [](unsigned char c) { return absl::ascii_isspace(c); });
}

}  // namespace

absl::Status TextReader::ReadFile(InputFile& file, int64_t file_index) {
  pending_location_ = {file_index, 1};
  if (args_.source->text_documents == TextDocuments::kBlankLine) {
    PENSTOCK_RETURN_IF_ERROR(ReadParagraphs(file));
  } else {
    PENSTOCK_RETURN_IF_ERROR(ReadWholeFile(file));
  }
  return EncodeGroup();
}

absl::Status TextReader::ReadWholeFile(InputFile& file) {
  std::string buffer(kReadBytes, '\0');
  bool any = false;
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t got, file.Read(buffer));
    if (got == 0) break;
    any = true;
    PENSTOCK_RETURN_IF_ERROR(Add(std::string_view(buffer).substr(0, got)));
  }
  return any ? Cut(pending_.size(), true) : absl::OkStatus();
}

// The lines of a document are joined by "\n"; there is none after the last.
absl::Status TextReader::ReadParagraphs(InputFile& file) {
  LineReader lines(file, kMaxLineBytes);
  bool open = false;
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<std::string_view> line, lines.Next());
    if (line && !IsBlank(*line)) {
      if (open) {
        PENSTOCK_RETURN_IF_ERROR(Add("\n"));
      } else {
        pending_location_.line = lines.line_number();
      }
      open = true;
      PENSTOCK_RETURN_IF_ERROR(Add(*line));
      continue;
    }
    if (open) PENSTOCK_RETURN_IF_ERROR(Cut(pending_.size(), true));
    open = false;
    if (!line) return absl::OkStatus();
  }
}

absl::Status TextReader::Add(std::string_view text) {
  while (!text.empty()) {
    const size_t room = static_cast<size_t>(kEncodePieceBytes) - pending_.size();
    pending_.append(text.substr(0, room));
    text.remove_prefix(std::min(room, text.size()));
    // Not when merely full: only a document that goes on is cut.
    if (!text.empty()) PENSTOCK_RETURN_IF_ERROR(Cut(PieceEnd(pending_), false));
  }
  return absl::OkStatus();
}

absl::Status TextReader::Cut(size_t bytes, bool ends_document) {
  Piece piece = {.text = pending_.substr(0, bytes),
                 .location = pending_location_,
                 .ends_document = ends_document,
                 .status = {},
                 .ids = {}};
  pending_.erase(0, bytes);
  pending_location_.line += std::count(piece.text.begin(), piece.text.end(), '\n');
  group_bytes_ += static_cast<int64_t>(bytes);
  group_.push_back(std::move(piece));
  const bool full = group_bytes_ >= kTextGroupBytes || group_.size() == kGroupPieces;
  return full ? EncodeGroup() : absl::OkStatus();
}

absl::Status TextReader::EncodeGroup() {
  const Tokenizer& tokenizer = args_.encoder->tokenizer();
  args_.pool->ParallelFor(static_cast<int64_t>(group_.size()), [&](int64_t i, int) {
    Piece& piece = group_[i];
    piece.status = tokenizer.Encode(piece.text, piece.ids);
  });
  for (const Piece& piece : group_) PENSTOCK_RETURN_IF_ERROR(GiveOut(piece));
  group_.clear();
  group_bytes_ = 0;
  return absl::OkStatus();
}

absl::Status TextReader::GiveOut(const Piece& piece) {
  if (!piece.status.ok()) return Refuse(piece);
  const DocumentFrame& frame = args_.encoder->frame();
  // A tokenizer may give no token for, say, a lone control character.
  if (!piece.ids.empty()) {
    if (tokens_ == 0) {
      start_ = piece.location;
      if (!frame.before.empty()) PENSTOCK_RETURN_IF_ERROR(args_.sink->Append(frame.before, {}));
    }
    PENSTOCK_RETURN_IF_ERROR(args_.sink->Append(piece.ids, {}));
    tokens_ += static_cast<int64_t>(piece.ids.size());
  }
  if (!piece.ends_document || tokens_ == 0) return absl::OkStatus();
  if (!frame.after.empty()) PENSTOCK_RETURN_IF_ERROR(args_.sink->Append(frame.after, {}));
  tokens_ = 0;
  ++documents_;
  return args_.sink->EndDocument(start_);
}

absl::Status TextReader::Refuse(const Piece& piece) const {
  const size_t at = FindInvalidUtf8(piece.text);
  if (at == std::string::npos) {
    return Annotate(piece.status, ToText(piece.location, args_.source->paths));
  }
  const std::string_view before = std::string_view(piece.text).substr(0, at);
  SourceLocation location = piece.location;
  location.line += std::count(before.begin(), before.end(), '\n');
  // npos + 1 is 0: the piece began with this line.
  const size_t column = at - (before.rfind('\n') + 1) + 1;
  const std::string& path = args_.source->paths[location.file];
  return Error(
      absl::StatusCode::kInvalidArgument, reason::kDataInvalid,
      absl::StrCat(ToText(location, args_.source->paths), ":", column,
                   ": the text is not UTF-8; convert the file with iconv, or take the "
                   "broken bytes out with iconv -c"),
      {{"path", path}, {"line", absl::StrCat(location.line)}, {"column", absl::StrCat(column)}});
}

}  // namespace penstock
