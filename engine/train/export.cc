#include "engine/train/export.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/memory/planes.h"
#include "engine/train/weight_convert.h"
#include "nlohmann/json.hpp"

namespace penstock {
namespace {

constexpr char kConfigName[] = "config.json";
constexpr char kIndexName[] = "model.safetensors.index.json";

// A run of one tensor: what a task reads and narrows at a time.
struct Piece {
  const WeightEntry* entry;
  int64_t first;
  int64_t count;
};

std::vector<Piece> CutIntoPieces(const std::vector<WeightEntry>& entries) {
  std::vector<Piece> pieces;
  for (const WeightEntry& entry : entries) {
    const int64_t elements = entry.elements();
    for (int64_t first = 0; first < elements; first += kWindowElements) {
      pieces.push_back({&entry, first, std::min(kWindowElements, elements - first)});
    }
  }
  return pieces;
}

struct Window {
  std::vector<float> values;
  std::vector<std::byte> raw;
};

absl::Status CheckFinite(const Piece& piece, std::span<const float> values) {
  const int64_t bad = FindNonFinite(values, piece.entry->type);
  if (bad < 0) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition, reason::kNonFinite,
               absl::StrCat("element ", piece.first + bad, " of ", piece.entry->name, " is ",
                            values[bad], ", which is not finite as ", ToString(piece.entry->type),
                            "; export an earlier checkpoint, or a wider type if it is finite"),
               {{"tensor", piece.entry->name}});
}

absl::Status FillWindow(const WeightReader& weights, const Piece& piece, Window& window) {
  window.values.resize(piece.count);
  window.raw.resize(piece.count * BytesPerElement(piece.entry->type));
  PENSTOCK_RETURN_IF_ERROR(weights.Read(piece.entry->name, piece.first, window.values));
  PENSTOCK_RETURN_IF_ERROR(CheckFinite(piece, window.values));
  NarrowWeights(piece.entry->type, window.values, window.raw.data());
  return absl::OkStatus();
}

const char* TorchName(WeightType type) {
  switch (type) {
    case WeightType::kFloat32:
      return "float32";
    case WeightType::kFloat16:
      return "float16";
    case WeightType::kBFloat16:
      return "bfloat16";
  }
  return "?";
}

// config.json as it is, unless it names another type than all tensors now have.
std::string ConfigFor(const ExportSource& source, std::optional<WeightType> type) {
  if (!type) return source.config_json;
  nlohmann::ordered_json config =
      nlohmann::ordered_json::parse(source.config_json, nullptr, /*allow_exceptions=*/false);
  bool changed = false;
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (!config.is_object() || !config.contains(key) || config[key] == TorchName(*type)) continue;
    config[key] = TorchName(*type);
    changed = true;
  }
  return changed ? absl::StrCat(config.dump(2), "\n") : source.config_json;
}

std::string MakeIndex(const std::vector<WeightFile>& files) {
  nlohmann::json index;
  int64_t total_bytes = 0;
  for (const WeightFile& file : files) {
    for (const WeightEntry& entry : file.entries) {
      total_bytes += entry.bytes();
      index["weight_map"][entry.name] = file.name;
    }
  }
  index["metadata"]["total_size"] = total_bytes;
  return absl::StrCat(index.dump(2), "\n");
}

// An export must not replace the model it came from.
absl::Status RefuseSource(const ExportSource& source, const std::string& destination) {
  struct stat from {
  }, to{};
  if (source.model_path.empty() || stat(source.model_path.c_str(), &from) != 0 ||
      stat(destination.c_str(), &to) != 0 || from.st_dev != to.st_dev || from.st_ino != to.st_ino) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kFailedPrecondition, reason::kOutputExists,
               absl::StrCat(destination, " is the model that was trained; export to another place"),
               {{"path", destination}});
}

// Adds what it writes to `written`.
absl::Status WriteSmallFiles(const StagedDirectory& staged, const ExportSource& source,
                             const std::vector<WeightFile>& files, const ExportOptions& options,
                             std::vector<WrittenFile>& written) {
  const auto write = [&](const std::string& name, const std::string& content) -> absl::Status {
    PENSTOCK_ASSIGN_OR_RETURN(written.emplace_back(),
                              WriteWholeFile(staged.fd(), staged.destination(), name, content));
    return absl::OkStatus();
  };
  if (source.indexed) PENSTOCK_RETURN_IF_ERROR(write(kIndexName, MakeIndex(files)));
  PENSTOCK_RETURN_IF_ERROR(write(kConfigName, ConfigFor(source, options.type)));
  for (const SideFile& side_file : source.side_files) {
    PENSTOCK_RETURN_IF_ERROR(write(side_file.name, side_file.content));
  }
  return absl::OkStatus();
}

struct StreamArgs {
  const WeightReader& weights;
  int64_t total_bytes = 0;  // of all files, for `progress`
  int64_t done_bytes = 0;
};

// Streams the entries of one file into it, in rounds of one window per worker, and adds the bytes
// it writes to done_bytes.
absl::Status StreamEntries(const std::vector<WeightEntry>& entries, StreamArgs& args,
                           SafetensorsWriter& writer, ThreadPool& pool, ProgressFunction progress) {
  const std::vector<Piece> pieces = CutIntoPieces(entries);
  const int64_t count = static_cast<int64_t>(pieces.size());
  std::vector<Window> windows(pool.size());
  std::vector<absl::Status> results(pool.size());
  // A round: every worker fills a window, then they are written in order.
  for (int64_t begin = 0; begin < count; begin += pool.size()) {
    const int64_t round = std::min<int64_t>(pool.size(), count - begin);
    pool.ParallelFor(round, [&](int64_t task, int) {
      results[task] = FillWindow(args.weights, pieces[begin + task], windows[task]);
    });
    for (int64_t i = 0; i < round; ++i) {
      PENSTOCK_RETURN_IF_ERROR(results[i]);
      PENSTOCK_RETURN_IF_ERROR(writer.Append(windows[i].raw));
      args.done_bytes += static_cast<int64_t>(windows[i].raw.size());
    }
    PENSTOCK_RETURN_IF_ERROR(progress(args.done_bytes, args.total_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status StoreReader::Read(const std::string& name, int64_t first, std::span<float> out) const {
  const ParameterIndex::Place* place = index_.Find(name);
  const int64_t count = static_cast<int64_t>(out.size());
  PENSTOCK_CHECK(place != nullptr && first + count <= place->parameter->size, name);
  const BlockStore& block = store_.block(place->block);
  const int64_t begin = place->parameter->offset + first;
  JoinPlanes(block.hi.data() + begin, block.lo.data() + begin, count, out.data());
  return absl::OkStatus();
}

int64_t ExportPeakBytes(int workers) {
  return workers * kWindowElements * static_cast<int64_t>(2 * sizeof(float)) +
         FileWriter::kBufferBytes;
}

absl::Status ExportModel(const WeightReader& weights, const ExportSource& source,
                         const std::string& destination, const ExportOptions& options,
                         ThreadPool& pool, ProgressFunction progress) {
  std::vector<WeightFile> files = source.files;
  StreamArgs args{.weights = weights};
  for (WeightFile& file : files) {
    for (WeightEntry& entry : file.entries) {
      entry.type = options.type.value_or(entry.type);
      args.total_bytes += entry.bytes();
    }
  }
  PENSTOCK_RETURN_IF_ERROR(RefuseSource(source, destination));
  PENSTOCK_ASSIGN_OR_RETURN(StagedDirectory staged,
                            StagedDirectory::Create(destination, options.existing));
  std::vector<WrittenFile> written;
  for (const WeightFile& file : files) {
    PENSTOCK_ASSIGN_OR_RETURN(
        SafetensorsWriter writer,
        SafetensorsWriter::Create(staged.fd(), staged.destination(), file.name, file.entries));
    PENSTOCK_RETURN_IF_ERROR(StreamEntries(file.entries, args, writer, pool, progress));
    PENSTOCK_ASSIGN_OR_RETURN(written.emplace_back(), writer.Finish());
  }
  PENSTOCK_RETURN_IF_ERROR(WriteSmallFiles(staged, source, files, options, written));
  if (const ProvenanceSource* const from = options.provenance; from != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(
        WriteProvenance(staged, from->Describe(ProvenanceSubject::kExport, options.step), written,
                        from->key())
            .status());
  }
  return staged.Commit();
}

}  // namespace penstock
