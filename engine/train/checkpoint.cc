#include "engine/train/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/train/checkpoint_manifest.h"
#include "engine/train/rooted_file.h"
#include "engine/train/safetensors.h"
#include "engine/train/safetensors_writer.h"
#include "engine/train/staged_directory.h"
#include "engine/train/weight_convert.h"

namespace penstock {
namespace {

constexpr char kConfigName[] = "config.json";
constexpr int64_t kMaxSourceFileBytes = int64_t{64} << 20;  // what model_directory.h accepts
constexpr int64_t kHashWindowBytes = int64_t{4} << 20;

std::string InSource(const std::string& name) {
  return absl::StrCat(kCheckpointSourceFolder, "/", name);
}

// The masters of every parameter as files of at most 4 GiB or one tensor.
std::vector<WeightFile> MasterFiles(const ModelLayout& layout) {
  std::vector<WeightFile> files =
      MakeExportSource(layout, "", WeightType::kFloat32, int64_t{4} << 30).files;
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].name = absl::StrFormat("weights-%05d.safetensors", i + 1);
  }
  return files;
}

absl::Status WriteSource(StagedDirectory& staged, const ExportSource& source,
                         std::vector<WrittenFile>& files) {
  PENSTOCK_ASSIGN_OR_RETURN(const int folder, staged.MakeSubdirectory(kCheckpointSourceFolder));
  const auto write = [&](const std::string& name, const std::string& content) -> absl::Status {
    PENSTOCK_ASSIGN_OR_RETURN(
        WrittenFile file, WriteWholeFile(folder, InSource(staged.destination()), name, content));
    file.name = InSource(name);
    files.push_back(std::move(file));
    return absl::OkStatus();
  };
  PENSTOCK_RETURN_IF_ERROR(write(kConfigName, source.config_json));
  for (const SideFile& side_file : source.side_files) {
    PENSTOCK_RETURN_IF_ERROR(write(side_file.name, side_file.content));
  }
  return absl::OkStatus();
}

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
  explicit CheckpointReader(const Checkpoint& checkpoint)
      : checkpoint_(checkpoint), index_(checkpoint.layout()) {
    for (const TensorLocation& tensor : checkpoint.tensors()) {
      locations_.emplace(tensor.name, &tensor);
    }
  }

  absl::Status Read(const std::string& name, int64_t first, std::span<float> out) const override {
    const ParameterIndex::Place* place = index_.Find(name);
    PENSTOCK_CHECK(place != nullptr, name);
    const TensorLocation& tensor = *locations_.at(place->parameter->name);
    const int64_t offset = tensor.offset + first * static_cast<int64_t>(sizeof(float));
    return checkpoint_.files()[tensor.file].ReadAt(offset, std::as_writable_bytes(out));
  }

 private:
  const Checkpoint& checkpoint_;
  const ParameterIndex index_;
  std::map<std::string, const TensorLocation*> locations_;
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
    PENSTOCK_RETURN_IF_ERROR(LocateParameters());
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
    PENSTOCK_ASSIGN_OR_RETURN(const std::string text, file->ReadAll(kMaxManifestBytes));
    PENSTOCK_ASSIGN_OR_RETURN(manifest_, ParseManifest(text, file->path()));
    checkpoint_->info_ = manifest_.info;
    checkpoint_->source_ = manifest_.source;
    return absl::OkStatus();
  }

  absl::Status OpenListed(const WrittenFile& listed) {
    absl::StatusOr<ReadableFile> file = root_.OpenFile(listed.name);
    if (!file.ok()) {
      return CheckpointCorrupt(root_.path(), absl::StrCat("a file of the manifest cannot be read: ",
                                                          file.status().message()));
    }
    if (file->size() != listed.bytes) {
      return CheckpointCorrupt(file->path(), absl::StrCat("has ", file->size(), " bytes; ",
                                                          listed.bytes, " are wanted"));
    }
    if (verification_ == Verification::kHashes) {
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
    const auto file = opened_.find(InSource(name));
    if (file == opened_.end()) {
      return CheckpointCorrupt(PathOf(kManifestName),
                               absl::StrCat("does not list ", InSource(name)));
    }
    return file->second.ReadAll(kMaxSourceFileBytes);
  }

  absl::Status ReadSource() {
    ExportSource& source = checkpoint_->source_;
    PENSTOCK_ASSIGN_OR_RETURN(source.config_json, ReadSourceFile(kConfigName));
    for (SideFile& side_file : source.side_files) {
      PENSTOCK_ASSIGN_OR_RETURN(side_file.content, ReadSourceFile(side_file.name));
    }
    absl::StatusOr<ModelSpec> spec = ParseModelConfig(source.config_json);
    if (!spec.ok()) return Annotate(spec.status(), PathOf(kCheckpointSourceFolder));
    checkpoint_->spec_ = *std::move(spec);
    checkpoint_->layout_ = MakeLayout(checkpoint_->spec_);
    return absl::OkStatus();
  }

  absl::Status LocateParameters() {
    std::map<std::string, std::pair<int64_t, StoredTensor>> stored;
    for (const WeightFile& master : MasterFiles(checkpoint_->layout_)) {
      const auto file = opened_.find(master.name);
      if (file == opened_.end()) {
        return CheckpointCorrupt(PathOf(kManifestName),
                                 absl::StrCat("does not list ", master.name));
      }
      absl::StatusOr<std::vector<StoredTensor>> tensors = ReadSafetensorsHeader(file->second);
      if (!tensors.ok()) {
        return CheckpointCorrupt(file->second.path(), std::string(tensors.status().message()));
      }
      const int64_t number = static_cast<int64_t>(checkpoint_->files_.size());
      for (StoredTensor& tensor : *tensors) {
        const std::string name = tensor.name;
        stored.try_emplace(name, number, std::move(tensor));
      }
      checkpoint_->files_.push_back(std::move(file->second));
    }
    for (const BlockLayout& block : checkpoint_->layout_.blocks) {
      for (const Parameter& parameter : block.parameters) {
        const auto found = stored.find(parameter.name);
        if (found == stored.end()) {
          return CheckpointCorrupt(root_.path(), absl::StrCat("has no tensor ", parameter.name));
        }
        const auto& [file, tensor] = found->second;
        if (tensor.dtype != "F32" || tensor.shape != parameter.shape) {
          return CheckpointCorrupt(
              checkpoint_->files_[file].path(),
              absl::StrCat("tensor ", tensor.name, " is ", tensor.dtype, " [",
                           absl::StrJoin(tensor.shape, ", "), "]; F32 [",
                           absl::StrJoin(parameter.shape, ", "), "] is wanted"));
        }
        checkpoint_->tensors_.push_back({.name = parameter.name,
                                         .type = WeightType::kFloat32,
                                         .file = file,
                                         .offset = tensor.begin,
                                         .elements = parameter.size});
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

absl::Status WriteCheckpoint(const HostStore& store, const ExportSource& source,
                             const CheckpointInfo& info, const std::string& destination,
                             ThreadPool& pool, ProgressFunction progress) {
  if (info.loss && !std::isfinite(*info.loss)) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kInternal,
                 absl::StrCat("the loss of a checkpoint is ", *info.loss,
                              "; a finite number or none is needed"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(StagedDirectory staged,
                            StagedDirectory::Create(destination, Existing::kRefuse));
  CheckpointManifest manifest{.info = info, .files = {}, .source = source};
  const StoreReader weights(store);
  StreamArgs args{.weights = weights, .check = FiniteCheck::kNone};
  args.total_bytes = store.layout().parameter_count * static_cast<int64_t>(sizeof(float));
  for (const WeightFile& file : MasterFiles(store.layout())) {
    PENSTOCK_ASSIGN_OR_RETURN(
        SafetensorsWriter writer,
        SafetensorsWriter::Create(staged.fd(), staged.destination(), file.name, file.entries));
    PENSTOCK_RETURN_IF_ERROR(StreamEntries(file.entries, args, writer, pool, progress));
    PENSTOCK_ASSIGN_OR_RETURN(WrittenFile written, writer.Finish());
    manifest.files.push_back(std::move(written));
  }
  PENSTOCK_RETURN_IF_ERROR(WriteSource(staged, source, manifest.files));
  PENSTOCK_RETURN_IF_ERROR(
      WriteWholeFile(staged.fd(), staged.destination(), kManifestName, ManifestText(manifest))
          .status());
  return staged.Commit();
}

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::string& path,
                                                           Verification verification) {
  PENSTOCK_ASSIGN_OR_RETURN(RootedDirectory root, RootedDirectory::Open(path));
  return CheckpointOpener(std::move(root), verification).Open();
}

absl::Status LoadCheckpointWeights(const Checkpoint& checkpoint, HostStore& store, ThreadPool& pool,
                                   ProgressFunction progress) {
  return LoadTensors(checkpoint.tensors(), checkpoint.files(), FiniteCheck::kNone, store, pool,
                     progress);
}

absl::Status ExportCheckpoint(const std::string& checkpoint, const std::string& destination,
                              const ExportOptions& options, ThreadPool& pool,
                              ProgressFunction progress) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> opened,
                            OpenCheckpoint(checkpoint, Verification::kHashes));
  return ExportModel(CheckpointReader(*opened), opened->source(), destination, options, pool,
                     progress);
}

}  // namespace penstock
