// Opening a checkpoint, and exporting it from its files.
#include "engine/train/checkpoint.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/train/checkpoint_manifest.h"
#include "engine/train/file_writer.h"
#include "engine/train/rooted_file.h"
#include "engine/train/safetensors.h"

namespace penstock {
namespace {

constexpr int64_t kMaxSourceFileBytes = int64_t{64} << 20;  // what model_directory.h accepts
constexpr int64_t kHashWindowBytes = int64_t{4} << 20;

absl::StatusOr<uint64_t> HashOf(const ReadableFile& file) {
  StreamHash hash;
  std::vector<std::byte> window(std::min(kHashWindowBytes, file.size()));
  for (int64_t at = 0; at < file.size(); at += kHashWindowBytes) {
    const int64_t count = std::min(kHashWindowBytes, file.size() - at);
    const std::span<std::byte> part(window.data(), static_cast<size_t>(count));
    PENSTOCK_RETURN_IF_ERROR(file.ReadAt(at, part));
    hash.Update(part);
  }
  return hash.Digest();
}

// Values of an opened checkpoint, straight from its files.
class CheckpointReader : public WeightReader {
 public:
  explicit CheckpointReader(const Checkpoint& checkpoint) : index_(checkpoint.layout()) {
    for (const CheckpointFile& file : checkpoint.files()) {
      if (file.plane != CheckpointPlane::kWeights) continue;
      for (const StoredTensor& tensor : file.tensors) {
        places_.emplace(tensor.name, Place{&file.file, tensor.begin});
      }
    }
  }

  absl::Status Read(const std::string& name, int64_t first, std::span<float> out) const override {
    const ParameterIndex::Place* parameter = index_.Find(name);
    PENSTOCK_CHECK(parameter != nullptr, name);
    const Place& place = places_.at(parameter->parameter->name);
    const int64_t offset = place.offset + first * static_cast<int64_t>(sizeof(float));
    return place.file->ReadAt(offset, std::as_writable_bytes(out));
  }

 private:
  struct Place {
    const ReadableFile* file;
    int64_t offset;
  };
  const ParameterIndex index_;
  std::map<std::string, Place> places_;
};

}  // namespace

// Fills a Checkpoint, a step a function.
class CheckpointOpener {
 public:
  CheckpointOpener(RootedDirectory root, Verification verification)
      : root_(std::move(root)), verification_(verification), checkpoint_(new Checkpoint()) {}

  absl::StatusOr<std::unique_ptr<Checkpoint>> Open() {
    checkpoint_->path_ = root_.path();
    PENSTOCK_RETURN_IF_ERROR(ReadManifest());
    for (const WrittenFile& file : manifest_.files) {
      PENSTOCK_RETURN_IF_ERROR(OpenListed(file));
    }
    PENSTOCK_RETURN_IF_ERROR(ReadSource());
    for (const CheckpointPlane plane : CheckpointPlanes(manifest_.moment_type)) {
      PENSTOCK_RETURN_IF_ERROR(TakePlane(plane));
    }
    PENSTOCK_RETURN_IF_ERROR(ShapeEntries());
    return std::move(checkpoint_);
  }

 private:
  std::string PathOf(const std::string& name) const {
    return absl::StrCat(root_.path(), "/", name);
  }

  absl::Status ReadManifest() {
    const absl::StatusOr<ReadableFile> file = root_.OpenFile(kManifestName);
    if (absl::IsNotFound(file.status())) {
      return CheckpointCorrupt(root_.path(),
                               absl::StrCat("is no checkpoint: it has no ", kManifestName));
    }
    PENSTOCK_RETURN_IF_ERROR(file.status());
    if (file->size() > kMaxManifestBytes) {
      return CheckpointCorrupt(file->path(), absl::StrCat("has ", file->size(), " bytes; at most ",
                                                          kMaxManifestBytes, " are wanted"));
    }
    PENSTOCK_ASSIGN_OR_RETURN(const std::string text, file->ReadAll(kMaxManifestBytes));
    PENSTOCK_ASSIGN_OR_RETURN(manifest_, ParseManifest(text, file->path()));
    checkpoint_->info_ = manifest_.info;
    checkpoint_->source_ = manifest_.source;
    checkpoint_->moment_type_ = manifest_.moment_type;
    return absl::OkStatus();
  }

  // What is small is always verified.
  bool MustHash(const std::string& name) const {
    if (absl::StartsWith(name, InCheckpointSource(""))) return true;
    return verification_ == Verification::kHashes ||
           (verification_ == Verification::kWeights && IsFileOf(CheckpointPlane::kWeights, name));
  }

  static bool IsFileOf(CheckpointPlane plane, const std::string& name) {
    return absl::StartsWith(name, absl::StrCat(CheckpointPlaneName(plane), "-"));
  }

  absl::Status OpenListed(const WrittenFile& listed) {
    absl::StatusOr<ReadableFile> file = root_.OpenFile(listed.name);
    if (ReasonOf(file.status()) == reason::kIoError) return file.status();
    if (!file.ok()) {
      return CheckpointCorrupt(root_.path(), absl::StrCat("a file of the manifest cannot be read: ",
                                                          file.status().message()));
    }
    if (file->size() != listed.bytes) {
      return CheckpointCorrupt(file->path(), absl::StrCat("has ", file->size(), " bytes; ",
                                                          listed.bytes, " are wanted"));
    }
    if (MustHash(listed.name)) {
      PENSTOCK_ASSIGN_OR_RETURN(const uint64_t hash, HashOf(*file));
      if (hash != listed.xxh3) {
        return CheckpointCorrupt(
            file->path(), absl::StrFormat("has XXH3-64 %016x; %016x is wanted", hash, listed.xxh3));
      }
    }
    if (!opened_.emplace(listed.name, *std::move(file)).second) {
      return CheckpointCorrupt(PathOf(kManifestName),
                               absl::StrCat("lists ", listed.name, " twice"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ReadSourceFile(const std::string& name) const {
    const auto file = opened_.find(InCheckpointSource(name));
    if (file == opened_.end()) {
      return CheckpointCorrupt(PathOf(kManifestName),
                               absl::StrCat("does not list ", InCheckpointSource(name)));
    }
    return file->second.ReadAll(kMaxSourceFileBytes);
  }

  absl::Status ReadSource() {
    ExportSource& source = checkpoint_->source_;
    PENSTOCK_ASSIGN_OR_RETURN(source.config_json, ReadSourceFile(kCheckpointConfigName));
    for (SideFile& side_file : source.side_files) {
      PENSTOCK_ASSIGN_OR_RETURN(side_file.content, ReadSourceFile(side_file.name));
    }
    absl::StatusOr<ModelSpec> spec = ParseModelConfig(source.config_json);
    if (!spec.ok()) return Annotate(spec.status(), PathOf(kCheckpointSourceFolder));
    checkpoint_->spec_ = *std::move(spec);
    checkpoint_->layout_ = MakeLayout(checkpoint_->spec_);
    return absl::OkStatus();
  }

  // Opens the files of a plane. Every parameter is in one of them, once, or the plane is not there
  // at all, which for moments is allowed.
  absl::Status TakePlane(CheckpointPlane plane) {
    const ParameterIndex index(checkpoint_->layout_);
    std::set<std::string> found;
    for (const WrittenFile& listed : manifest_.files) {
      if (!IsFileOf(plane, listed.name)) continue;
      ReadableFile& opened = opened_.at(listed.name);
      absl::StatusOr<std::vector<StoredTensor>> tensors = ReadSafetensorsHeader(opened);
      if (ReasonOf(tensors.status()) == reason::kIoError) return tensors.status();
      if (!tensors.ok()) {
        return CheckpointCorrupt(opened.path(), std::string(tensors.status().message()));
      }
      for (const StoredTensor& tensor : *tensors) {
        PENSTOCK_RETURN_IF_ERROR(CheckTensor(plane, index, opened.path(), tensor));
        if (!found.insert(tensor.name).second) {
          return CheckpointCorrupt(
              opened.path(), absl::StrCat("has tensor ", tensor.name, ", which another file has"));
        }
      }
      checkpoint_->files_.push_back({.plane = plane,
                                     .file = std::move(opened),
                                     .xxh3 = listed.xxh3,
                                     .tensors = *std::move(tensors)});
    }
    if (found.empty() && plane != CheckpointPlane::kWeights && !checkpoint_->has_moments_) {
      return absl::OkStatus();
    }
    PENSTOCK_RETURN_IF_ERROR(CheckComplete(plane, found));
    if (plane == CheckpointPlane::kFirstMoment) checkpoint_->has_moments_ = true;
    return absl::OkStatus();
  }

  absl::Status CheckTensor(CheckpointPlane plane, const ParameterIndex& index,
                           const std::string& file, const StoredTensor& tensor) const {
    const ParameterIndex::Place* place = index.Find(tensor.name);
    if (place == nullptr || place->parameter->name != tensor.name) {
      return CheckpointCorrupt(
          file, absl::StrCat("has tensor ", tensor.name, ", which the model does not have"));
    }
    const StoredTensor wanted =
        CheckpointTensor(plane, checkpoint_->moment_type_, *place->parameter);
    if (tensor.dtype == wanted.dtype && tensor.shape == wanted.shape) return absl::OkStatus();
    return CheckpointCorrupt(
        file, absl::StrCat("tensor ", tensor.name, " is ", tensor.dtype, " [",
                           absl::StrJoin(tensor.shape, ", "), "]; ", wanted.dtype, " [",
                           absl::StrJoin(wanted.shape, ", "), "] is wanted"));
  }

  absl::Status CheckComplete(CheckpointPlane plane, const std::set<std::string>& found) {
    for (const BlockLayout& block : checkpoint_->layout_.blocks) {
      for (const Parameter& parameter : block.parameters) {
        if (found.contains(parameter.name)) continue;
        return CheckpointCorrupt(root_.path(),
                                 absl::StrCat("has no tensor ", parameter.name, " in its files ",
                                              CheckpointPlaneName(plane), "-*"));
      }
    }
    return absl::OkStatus();
  }

  // The manifest has names; shapes come from the layout.
  absl::Status ShapeEntries() {
    const ParameterIndex index(checkpoint_->layout_);
    for (WeightFile& file : checkpoint_->source_.files) {
      for (WeightEntry& entry : file.entries) {
        const ParameterIndex::Place* place = index.Find(entry.name);
        if (place == nullptr) {
          return CheckpointCorrupt(
              PathOf(kManifestName),
              absl::StrCat("names tensor ", entry.name, ", which the model does not have"));
        }
        entry.shape = place->parameter->shape;
      }
    }
    return absl::OkStatus();
  }

  RootedDirectory root_;
  const Verification verification_;
  std::unique_ptr<Checkpoint> checkpoint_;
  CheckpointManifest manifest_;
  std::map<std::string, ReadableFile> opened_;  // by name in the manifest
};

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::string& path,
                                                           Verification verification) {
  PENSTOCK_ASSIGN_OR_RETURN(RootedDirectory root, RootedDirectory::Open(path));
  return CheckpointOpener(std::move(root), verification).Open();
}

absl::Status ExportCheckpoint(const std::string& checkpoint, const std::string& destination,
                              const ExportOptions& options, ThreadPool& pool,
                              ProgressFunction progress) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> opened,
                            OpenCheckpoint(checkpoint, Verification::kWeights));
  ExportOptions with_step = options;
  with_step.step = opened->info().step;
  return ExportModel(CheckpointReader(*opened), opened->source(), destination, with_step, pool,
                     progress);
}

}  // namespace penstock
