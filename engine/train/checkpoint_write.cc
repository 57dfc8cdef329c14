// Writing a checkpoint: the list of files is a function of the layout; each file is a task. Threads
// take the tasks in an order that does not show in the result.
#include <algorithm>
#include <atomic>
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
#include "engine/train/save_order.h"
#include "engine/train/staged_directory.h"

namespace penstock {
namespace {

// Small enough that there are more files than threads where writing takes long.
constexpr int64_t kFileBytes = int64_t{1} << 30;
// Of a plane, if all were full; as they are not, up to twice as many.
constexpr int64_t kMaxFullFiles = 96;
// Manifest, side files, headers, what a file system takes for itself.
constexpr int64_t kRoomBesideTensors = int64_t{16} << 20;
constexpr int kMaxThreads = 8;
// What a thread touches of its stack, and what opening a file takes.
constexpr int64_t kBytesPerThread = int64_t{1} << 20;

struct FileTask {
  CheckpointPlane plane;
  std::string name;
  std::vector<StoredTensor> tensors;
};

// The planes that a checkpoint of the store has.
std::span<const CheckpointPlane> PlanesOf(const HostStore& store) {
  const std::span<const CheckpointPlane> planes = CheckpointPlanes(store.moment_type());
  return store.has_moments() ? planes : planes.first(1);
}

std::vector<FileTask> ListFiles(const HostStore& store) {
  const std::vector<WeightFile> cut = CutForCheckpoint(store.layout());
  const ParameterIndex index(store.layout());
  std::vector<FileTask> tasks;
  for (const CheckpointPlane plane : PlanesOf(store)) {
    for (size_t i = 0; i < cut.size(); ++i) {
      FileTask task{
          .plane = plane,
          .name = absl::StrFormat("%s-%05d.safetensors", CheckpointPlaneName(plane), i + 1),
          .tensors = {}};
      for (const WeightEntry& entry : cut[i].entries) {
        task.tensors.push_back(
            CheckpointTensor(plane, store.moment_type(), *index.Find(entry.name)->parameter));
      }
      tasks.push_back(std::move(task));
    }
  }
  return tasks;
}

// All planes of a file one after the other, files in the order in which they are due: a block
// may change when all its planes are copied.
std::vector<int64_t> OrderOf(const std::vector<FileTask>& tasks, const ModelLayout& layout,
                             std::span<const BlockId> update_order) {
  const ParameterIndex index(layout);
  const auto per_plane = std::count_if(tasks.begin(), tasks.end(), [](const FileTask& task) {
    return task.plane == CheckpointPlane::kWeights;
  });
  std::vector<std::vector<BlockId>> blocks(static_cast<size_t>(per_plane));
  for (size_t file = 0; file < blocks.size(); ++file) {
    for (const StoredTensor& tensor : tasks[file].tensors) {
      blocks[file].push_back(index.Find(tensor.name)->block);
    }
  }
  std::vector<int64_t> order;
  for (const int64_t file : ChooseSaveOrder(blocks, update_order)) {
    for (size_t task = file; task < tasks.size(); task += per_plane) {
      order.push_back(static_cast<int64_t>(task));
    }
  }
  return order;
}

// Counts what is still to be copied of each block. Thread-safe.
class CopiedBlocks {
 public:
  CopiedBlocks(const HostStore& store, std::optional<BlockCopied> copied)
      : copied_(copied), left_(store.layout().blocks.size()) {
    for (size_t i = 0; i < left_.size(); ++i) {
      for (const Parameter& parameter : store.layout().blocks[i].parameters) {
        for (const CheckpointPlane plane : PlanesOf(store)) {
          left_[i] += CheckpointTensor(plane, store.moment_type(), parameter).bytes;
        }
      }
    }
  }

  void Copied(BlockId block, int64_t bytes) {
    if (left_[Index(block)].fetch_sub(bytes) == bytes && copied_) (*copied_)(block);
  }

 private:
  const std::optional<BlockCopied> copied_;
  std::vector<std::atomic<int64_t>> left_;  // bytes, by block
};

class FileTaskWriter {
 public:
  FileTaskWriter(const HostStore& store, const StagedDirectory& staged, int workers,
                 CopiedBlocks& copied, SharedProgress& progress)
      : store_(store),
        staged_(staged),
        index_(store.layout()),
        windows_(workers),
        copied_(copied),
        progress_(progress) {}

  absl::StatusOr<WrittenFile> Write(const FileTask& task, int worker) {
    PENSTOCK_ASSIGN_OR_RETURN(
        SafetensorsWriter writer,
        SafetensorsWriter::Create(staged_.fd(), staged_.destination(), task.name, task.tensors));
    for (const StoredTensor& tensor : task.tensors) {
      const ParameterIndex::Place& place = *index_.Find(tensor.name);
      for (int64_t first = 0; first < tensor.bytes; first += kWindowBytes) {
        const int64_t count = std::min(kWindowBytes, tensor.bytes - first);
        const std::span<const std::byte> values = Bytes(task.plane, place, first, count, worker);
        PENSTOCK_RETURN_IF_ERROR(writer.Append(values));
        copied_.Copied(place.block, count);
        progress_.Finish(absl::OkStatus(), count);
        if (progress_.failed()) return absl::CancelledError("another file failed");
      }
    }
    return writer.Finish();
  }

 private:
  static constexpr int64_t kWindowBytes = kWindowElements * int64_t{sizeof(float)};

  // Moments are written from where they lie; planes are joined in the worker's window.
  std::span<const std::byte> Bytes(CheckpointPlane plane, const ParameterIndex::Place& place,
                                   int64_t first, int64_t count, int worker) {
    if (plane != CheckpointPlane::kWeights) {
      return MomentMemory(store_, plane, place.block, *place.parameter).subspan(first, count);
    }
    const BlockStore& block = store_.block(place.block);
    const int64_t begin = place.parameter->offset + first / int64_t{sizeof(float)};
    std::vector<float>& window = windows_[worker];
    window.resize(kWindowElements);
    JoinPlanes(block.hi.data() + begin, block.lo.data() + begin, count / int64_t{sizeof(float)},
               window.data());
    return std::as_bytes(std::span(window)).first(count);
  }

  const HostStore& store_;
  const StagedDirectory& staged_;
  const ParameterIndex index_;
  std::vector<std::vector<float>> windows_;  // by worker
  CopiedBlocks& copied_;
  SharedProgress& progress_;
};

absl::Status WriteTensors(const HostStore& store, const StagedDirectory& staged, ThreadPool& pool,
                          ProgressFunction progress, const CheckpointWriteOptions& options,
                          std::vector<WrittenFile>& files) {
  const std::vector<FileTask> tasks = ListFiles(store);
  const std::vector<int64_t> order = OrderOf(tasks, store.layout(), options.update_order);
  files.resize(tasks.size());
  SharedProgress shared(CheckpointBytes(store), progress);
  CopiedBlocks copied(store, options.copied);
  FileTaskWriter writer(store, staged, pool.size(), copied, shared);
  std::atomic<size_t> next = 0;
  // A task of the pool goes through whatever is next: the pool itself cuts its tasks into shares.
  pool.ParallelFor(pool.size(), [&](int64_t, int worker) {
    for (size_t at = next++; at < order.size() && !shared.failed(); at = next++) {
      absl::StatusOr<WrittenFile> written = writer.Write(tasks[order[at]], worker);
      if (!written.ok()) {
        shared.Finish(written.status(), 0);
      } else {
        files[order[at]] = *std::move(written);
      }
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

std::vector<WeightFile> CutForCheckpoint(const ModelLayout& layout) {
  const int64_t bytes = layout.parameter_count * static_cast<int64_t>(sizeof(float));
  return MakeExportSource(layout, "", WeightType::kFloat32,
                          std::max(kFileBytes, bytes / kMaxFullFiles))
      .files;
}

int CheckpointThreads(int threads) { return threads <= 1 ? 1 : std::min(4 * threads, kMaxThreads); }

int64_t CheckpointPeakBytes(int checkpoint_threads) {
  return checkpoint_threads * (kWindowElements * static_cast<int64_t>(sizeof(float)) +
                               FileWriter::kBufferBytes + kBytesPerThread);
}

int64_t CheckpointBytes(const HostStore& store) {
  int64_t bytes = 0;
  for (const BlockLayout& block : store.layout().blocks) {
    for (const Parameter& parameter : block.parameters) {
      for (const CheckpointPlane plane : PlanesOf(store)) {
        bytes += CheckpointTensor(plane, store.moment_type(), parameter).bytes;
      }
    }
  }
  return bytes;
}

absl::StatusOr<WrittenCheckpoint> WriteCheckpoint(const HostStore& store,
                                                  const ExportSource& source,
                                                  const CheckpointInfo& info,
                                                  const std::string& destination, ThreadPool& pool,
                                                  ProgressFunction progress,
                                                  const CheckpointWriteOptions& options) {
  if (info.loss && !std::isfinite(*info.loss)) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kInternal,
                 absl::StrCat("the loss of a checkpoint is ", *info.loss,
                              "; a finite number or none is needed"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(StagedDirectory staged,
                            StagedDirectory::Create(destination, Existing::kRefuse));
  PENSTOCK_RETURN_IF_ERROR(staged.CheckRoom(CheckpointBytes(store) + kRoomBesideTensors));
  CheckpointManifest manifest{
      .info = info, .moment_type = store.moment_type(), .files = {}, .source = source};
  PENSTOCK_RETURN_IF_ERROR(WriteTensors(store, staged, pool, progress, options, manifest.files));
  PENSTOCK_RETURN_IF_ERROR(WriteSource(staged, source, manifest.files));
  std::vector<WrittenFile> files = manifest.files;
  PENSTOCK_ASSIGN_OR_RETURN(
      files.emplace_back(),
      WriteWholeFile(staged.fd(), staged.destination(), kManifestName, ManifestText(manifest)));
  WrittenCheckpoint written;
  for (const WrittenFile& file : files) written.bytes += file.bytes;
  if (options.provenance != nullptr) {
    PENSTOCK_ASSIGN_OR_RETURN(
        WrittenProvenance provenance,
        WriteProvenance(staged,
                        options.provenance->Describe(ProvenanceSubject::kCheckpoint, info.step),
                        files, options.provenance->key()));
    written.bytes += provenance.bytes;
    written.provenance_sha256 = std::move(provenance.sha256);
  }
  PENSTOCK_RETURN_IF_ERROR(staged.Commit());
  return written;
}

}  // namespace penstock
