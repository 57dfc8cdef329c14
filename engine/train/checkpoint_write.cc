// Writing a checkpoint: the list of files is a function of the layout; each file is a task.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/memory/planes.h"
#include "engine/train/checkpoint.h"
#include "engine/train/checkpoint_manifest.h"
#include "engine/train/import.h"
#include "engine/train/safetensors_writer.h"
#include "engine/train/staged_directory.h"

namespace penstock {
namespace {

// Small enough that there are more files than threads where writing takes long.
constexpr int64_t kFileBytes = int64_t{1} << 30;
// Of a plane, if all were full; as they are not, up to twice as many.
constexpr int64_t kMaxFullFiles = 96;
// Manifest, side files, headers, what a file system takes for itself.
constexpr int64_t kRoomBesideTensors = int64_t{16} << 20;

struct FileTask {
  CheckpointPlane plane;
  WeightFile file;
};

std::vector<FileTask> ListFiles(const HostStore& store) {
  const std::vector<WeightFile> cut = CutForCheckpoint(store.layout());
  std::vector<FileTask> tasks;
  for (const CheckpointPlane plane : kCheckpointPlanes) {
    if (plane != CheckpointPlane::kWeights && !store.has_moments()) continue;
    for (size_t i = 0; i < cut.size(); ++i) {
      tasks.push_back({plane, cut[i]});
      tasks.back().file.name =
          absl::StrFormat("%s-%05d.safetensors", CheckpointPlaneName(plane), i + 1);
    }
  }
  return tasks;
}

class FileTaskWriter {
 public:
  FileTaskWriter(const HostStore& store, const StagedDirectory& staged, int workers,
                 SharedProgress& progress)
      : store_(store),
        staged_(staged),
        index_(store.layout()),
        windows_(workers),
        progress_(progress) {}

  absl::StatusOr<WrittenFile> Write(const FileTask& task, int worker) {
    PENSTOCK_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                              SafetensorsWriter::Create(staged_.fd(), staged_.destination(),
                                                        task.file.name, task.file.entries));
    for (const WeightEntry& entry : task.file.entries) {
      const ParameterIndex::Place& place = *index_.Find(entry.name);
      for (int64_t first = 0; first < entry.elements(); first += kWindowElements) {
        const int64_t count = std::min(kWindowElements, entry.elements() - first);
        const std::span<const float> values =
            Values(task.plane, place.block, place.parameter->offset + first, count, worker);
        PENSTOCK_RETURN_IF_ERROR(writer.Append(std::as_bytes(values)));
        progress_.Finish(absl::OkStatus(), static_cast<int64_t>(values.size_bytes()));
        if (progress_.failed()) return absl::CancelledError("another file failed");
      }
    }
    return writer.Finish();
  }

 private:
  // Moments are written from where they lie; planes are joined in the worker's window.
  std::span<const float> Values(CheckpointPlane plane, BlockId id, int64_t begin, int64_t count,
                                int worker) {
    const BlockStore& block = store_.block(id);
    if (plane == CheckpointPlane::kFirstMoment) return block.m.subspan(begin, count);
    if (plane == CheckpointPlane::kSecondMoment) return block.v.subspan(begin, count);
    std::vector<float>& window = windows_[worker];
    window.resize(kWindowElements);
    JoinPlanes(block.hi.data() + begin, block.lo.data() + begin, count, window.data());
    return std::span(window).first(count);
  }

  const HostStore& store_;
  const StagedDirectory& staged_;
  const ParameterIndex index_;
  std::vector<std::vector<float>> windows_;  // by worker
  SharedProgress& progress_;
};

absl::Status WriteTensors(const HostStore& store, const StagedDirectory& staged, ThreadPool& pool,
                          ProgressFunction progress, std::vector<WrittenFile>& files) {
  const std::vector<FileTask> tasks = ListFiles(store);
  files.resize(tasks.size());
  SharedProgress shared(CheckpointBytes(store), progress);
  FileTaskWriter writer(store, staged, pool.size(), shared);
  pool.ParallelFor(static_cast<int64_t>(tasks.size()), [&](int64_t task, int worker) {
    if (shared.failed()) return;
    absl::StatusOr<WrittenFile> written = writer.Write(tasks[task], worker);
    if (!written.ok()) {
      shared.Finish(written.status(), 0);
    } else {
      files[task] = *std::move(written);
    }
  });
  return shared.status();
}

absl::Status WriteSource(StagedDirectory& staged, const ExportSource& source,
                         std::vector<WrittenFile>& files) {
  PENSTOCK_ASSIGN_OR_RETURN(const int folder, staged.MakeSubdirectory(kCheckpointSourceFolder));
  const std::string directory = absl::StrCat(staged.destination(), "/", kCheckpointSourceFolder);
  const auto write = [&](const std::string& name, const std::string& content) -> absl::Status {
    PENSTOCK_ASSIGN_OR_RETURN(WrittenFile file, WriteWholeFile(folder, directory, name, content));
    file.name = InCheckpointSource(name);
    files.push_back(std::move(file));
    return absl::OkStatus();
  };
  PENSTOCK_RETURN_IF_ERROR(write(kCheckpointConfigName, source.config_json));
  for (const SideFile& side_file : source.side_files) {
    PENSTOCK_RETURN_IF_ERROR(write(side_file.name, side_file.content));
  }
  return absl::OkStatus();
}

}  // namespace

const char* CheckpointPlaneName(CheckpointPlane plane) {
  switch (plane) {
    case CheckpointPlane::kWeights:
      return "weights";
    case CheckpointPlane::kFirstMoment:
      return "m";
    case CheckpointPlane::kSecondMoment:
      return "v";
  }
  return "?";
}

std::vector<WeightFile> CutForCheckpoint(const ModelLayout& layout) {
  const int64_t bytes = layout.parameter_count * static_cast<int64_t>(sizeof(float));
  return MakeExportSource(layout, "", WeightType::kFloat32,
                          std::max(kFileBytes, bytes / kMaxFullFiles))
      .files;
}

int64_t CheckpointBytes(const HostStore& store) {
  const int64_t values = store.has_moments() ? 3 : 1;
  return store.layout().parameter_count * values * static_cast<int64_t>(sizeof(float));
}

absl::StatusOr<int64_t> WriteCheckpoint(const HostStore& store, const ExportSource& source,
                                        const CheckpointInfo& info, const std::string& destination,
                                        ThreadPool& pool, ProgressFunction progress) {
  if (info.loss && !std::isfinite(*info.loss)) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kInternal,
                 absl::StrCat("the loss of a checkpoint is ", *info.loss,
                              "; a finite number or none is needed"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(StagedDirectory staged,
                            StagedDirectory::Create(destination, Existing::kRefuse));
  PENSTOCK_RETURN_IF_ERROR(staged.CheckRoom(CheckpointBytes(store) + kRoomBesideTensors));
  CheckpointManifest manifest{.info = info, .files = {}, .source = source};
  PENSTOCK_RETURN_IF_ERROR(WriteTensors(store, staged, pool, progress, manifest.files));
  PENSTOCK_RETURN_IF_ERROR(WriteSource(staged, source, manifest.files));
  PENSTOCK_ASSIGN_OR_RETURN(
      const WrittenFile last,
      WriteWholeFile(staged.fd(), staged.destination(), kManifestName, ManifestText(manifest)));
  PENSTOCK_RETURN_IF_ERROR(staged.Commit());
  int64_t bytes = last.bytes;
  for (const WrittenFile& file : manifest.files) bytes += file.bytes;
  return bytes;
}

}  // namespace penstock
