#include "engine/tokenizer/sentencepiece_file.h"

#include <cmath>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "engine/model/config_fields.h"
#include "engine/model/strict_json.h"
#include "engine/tokenizer/proto_fields.h"
#include "engine/tokenizer/vocabulary.h"

namespace penstock {
namespace {

using Type = SentencePiece::Type;

absl::Status Invalid(std::string_view name, std::string_view problem) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kModelInvalid,
               absl::StrCat(std::string(name), ": ", std::string(problem)));
}

absl::Status Unsupported(std::string_view name, std::string_view problem) {
  return Error(absl::StatusCode::kUnimplemented, reason::kModelUnsupported,
               absl::StrCat(std::string(name), ": ", std::string(problem),
                            "; convert the model to a tokenizer.json and put it beside this file, "
                            "or train on token ids"));
}

absl::Status Broken(std::string_view name, std::string_view content) {
  std::string foreign = DescribeForeignContent(
      absl::string_view(content.data(), std::min(content.size(), size_t{512})));
  if (foreign.empty()) {
    foreign =
        "no SentencePiece model, or a part of one; copy the file again. (Of models such as "
        "Llama 3 the file of this name is of another kind: use their tokenizer.json.)";
  }
  return Invalid(name, absl::StrCat("is ", foreign));
}

// "piece 17 ("the")".
std::string PieceName(const SentencePieceFile& file, size_t id) {
  return absl::StrCat("piece ", id, " (", ShortJson(file.pieces[id].text), ")");
}

bool ReadPiece(std::string_view message, SentencePiece& piece) {
  ProtoFields fields(message);
  for (ProtoField field; fields.Next(field);) {
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2) piece.score = field.AsFloat();
    if (field.number == 3) {
      if (field.integer < 1 || field.integer > 6) return false;
      piece.type = static_cast<Type>(field.integer);
    }
  }
  return !fields.broken();
}

// What of the two specs matters, as written.
struct Specs {
  uint64_t model_type = 1;
  bool whitespace_as_suffix = false;
  std::string_view char_map = {};
  std::string_view denormalizer_char_map = {};
};

bool ReadTrainerSpec(std::string_view message, SentencePieceFile& file, Specs& specs) {
  ProtoFields fields(message);
  for (ProtoField field; fields.Next(field);) {
    if (field.number == 3) specs.model_type = field.integer;
    if (field.number == 24) specs.whitespace_as_suffix = field.integer != 0;
    if (field.number == 35) file.byte_fallback = field.integer != 0;
    if (field.number == 46) file.bos = field.bytes;
    if (field.number == 47) file.eos = field.bytes;
    if (field.number == 48) file.pad = field.bytes;
  }
  return !fields.broken();
}

bool ReadNormalizerSpec(std::string_view message, SentencePieceRewriting& rewriting,
                        std::string_view& char_map) {
  ProtoFields fields(message);
  for (ProtoField field; fields.Next(field);) {
    if (field.number == 2) char_map = field.bytes;
    if (field.number == 3) rewriting.add_dummy_prefix = field.integer != 0;
    if (field.number == 4) rewriting.remove_extra_whitespaces = field.integer != 0;
    if (field.number == 5) rewriting.escape_whitespaces = field.integer != 0;
  }
  return !fields.broken();
}

bool ReadModel(std::string_view content, SentencePieceFile& file, Specs& specs) {
  ProtoFields fields(content);
  for (ProtoField field; fields.Next(field);) {
    SentencePieceRewriting ignored;
    bool sound = true;
    if (field.number == 1) sound = ReadPiece(field.bytes, file.pieces.emplace_back());
    if (field.number == 2) sound = ReadTrainerSpec(field.bytes, file, specs);
    if (field.number == 3) {
      sound = ReadNormalizerSpec(field.bytes, file.rewriting, specs.char_map);
    }
    if (field.number == 5) {
      sound = ReadNormalizerSpec(field.bytes, ignored, specs.denormalizer_char_map);
    }
    if (!sound || file.pieces.size() > kMaxTokenId) return false;
  }
  return !fields.broken() && !file.pieces.empty();
}

absl::Status CheckSpecs(const Specs& specs, std::string_view name, SentencePieceFile& file) {
  if (specs.model_type != 1 && specs.model_type != 2) {
    const std::string type = specs.model_type == 3   ? "word"
                             : specs.model_type == 4 ? "char"
                                                     : absl::StrCat(specs.model_type);
    return Unsupported(
        name, absl::StrCat("trainer_spec.model_type is ", type, "; Penstock has unigram and bpe"));
  }
  file.algorithm = static_cast<SentencePieceFile::Algorithm>(specs.model_type);
  if (specs.whitespace_as_suffix) {
    return Unsupported(name,
                       "trainer_spec.treat_whitespace_as_suffix is true, which Penstock lacks");
  }
  if (!specs.denormalizer_char_map.empty()) {
    return Unsupported(name, "denormalizer_spec has rules, which Penstock lacks");
  }
  if (specs.char_map.empty()) return absl::OkStatus();
  std::optional<CharMap> map = CharMap::Read(specs.char_map);
  if (!map) return Invalid(name, "normalizer_spec.precompiled_charsmap is broken");
  file.rewriting.char_map = *std::move(map);
  return absl::OkStatus();
}

absl::Status CheckPiece(const SentencePieceFile& file, size_t id, std::string_view name) {
  const SentencePiece& piece = file.pieces[id];
  if (piece.text.empty()) return Invalid(name, absl::StrCat("piece ", id, " is empty"));
  if (FindInvalidUtf8(piece.text) != std::string_view::npos) {
    return Invalid(name, absl::StrCat("piece ", id, " is not UTF-8"));
  }
  if (piece.text.size() > kMaxSentencePieceBytes) {
    return Unsupported(
        name, absl::StrCat(PieceName(file, id), " has ", piece.text.size(), " bytes; at most ",
                           kMaxSentencePieceBytes, " are taken"));
  }
  if (!std::isfinite(piece.score)) {
    return Invalid(name, absl::StrCat(PieceName(file, id), " has a score that is no number"));
  }
  if (piece.type == Type::kUnused && file.algorithm == SentencePieceFile::Algorithm::kBpe) {
    return Unsupported(
        name, absl::StrCat(PieceName(file, id), " is unused, which Penstock lacks for bpe models"));
  }
  return absl::OkStatus();
}

absl::Status CheckPieces(std::string_view name, SentencePieceFile& file) {
  absl::flat_hash_set<absl::string_view> texts;
  int64_t unknowns = 0;
  int64_t bytes = 0;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    PENSTOCK_RETURN_IF_ERROR(CheckPiece(file, id, name));
    const SentencePiece& piece = file.pieces[id];
    if (!texts.insert(piece.text).second) {
      return Invalid(name, absl::StrCat(PieceName(file, id), " is there twice"));
    }
    if (piece.type == Type::kByte) ++bytes;
    if (piece.type != Type::kUnknown) continue;
    file.unknown_id = static_cast<int32_t>(id);
    ++unknowns;
  }
  if (unknowns != 1) {
    return Invalid(name, absl::StrCat("has ", unknowns, " pieces of type UNKNOWN; one is needed"));
  }
  if (!file.byte_fallback) {
    if (bytes == 0) return absl::OkStatus();
    return Invalid(name, "has pieces of type BYTE, but trainer_spec.byte_fallback is false");
  }
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text = absl::StrFormat("<0x%02X>", byte);
    if (bytes != 256 || !texts.contains(text)) {
      return Invalid(name, absl::StrCat("has ", bytes,
                                        " pieces of type BYTE for byte_fallback; "
                                        "the 256 from <0x00> to <0xFF> are needed"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SentencePieceFile> ReadSentencePieceFile(std::string_view content,
                                                        std::string_view name) {
  if (content.size() > kMaxSentencePieceFileBytes) {
    return Invalid(name, absl::StrCat("has ", content.size(), " bytes; at most ",
                                      kMaxSentencePieceFileBytes, " are taken"));
  }
  SentencePieceFile file;
  Specs specs;
  if (!ReadModel(content, file, specs)) return Broken(name, content);
  PENSTOCK_RETURN_IF_ERROR(CheckSpecs(specs, name, file));
  PENSTOCK_RETURN_IF_ERROR(CheckPieces(name, file));
  return file;
}

}  // namespace penstock
