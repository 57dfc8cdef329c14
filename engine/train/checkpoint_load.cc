// Reading a checkpoint back into a store: each file is a task that is read once, front to back,
// hashed on the way and put where it belongs.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/memory/planes.h"
#include "engine/train/checkpoint.h"
#include "engine/train/checkpoint_manifest.h"
#include "engine/train/import.h"

namespace penstock {
namespace {

class FileLoader {
 public:
  FileLoader(HostStore& store, int workers, SharedProgress& progress)
      : store_(store), index_(store.layout()), windows_(workers), progress_(progress) {}

  absl::Status Load(const CheckpointFile& file, int worker) {
    std::vector<float>& window = windows_[worker];
    window.resize(kWindowElements);
    StreamHash hash;
    PENSTOCK_RETURN_IF_ERROR(HashHeader(file, window, hash));
    for (const StoredTensor& tensor : file.tensors) {
      for (int64_t first = 0; first < tensor.bytes; first += kWindowBytes) {
        if (progress_.failed()) return absl::CancelledError("another file failed");
        const int64_t count = std::min(kWindowBytes, tensor.bytes - first);
        PENSTOCK_RETURN_IF_ERROR(LoadWindow(file, tensor, first, count, window, hash));
      }
    }
    const uint64_t found = hash.Digest();
    if (found == file.xxh3) return absl::OkStatus();
    return CheckpointCorrupt(
        file.file.path(), absl::StrFormat("has XXH3-64 %016x; %016x is wanted", found, file.xxh3));
  }

 private:
  static constexpr int64_t kWindowBytes = kWindowElements * int64_t{sizeof(float)};

  absl::Status HashHeader(const CheckpointFile& file, std::span<float> window, StreamHash& hash) {
    const std::span<std::byte> bytes = std::as_writable_bytes(window);
    const int64_t end = file.tensors.empty() ? file.file.size() : file.tensors.front().begin;
    for (int64_t at = 0; at < end;) {
      const int64_t count = std::min(static_cast<int64_t>(bytes.size()), end - at);
      PENSTOCK_RETURN_IF_ERROR(file.file.ReadAt(at, bytes.first(count)));
      hash.Update(bytes.first(count));
      at += count;
    }
    return absl::OkStatus();
  }

  absl::Status LoadWindow(const CheckpointFile& file, const StoredTensor& tensor, int64_t first,
                          int64_t count, std::span<float> window, StreamHash& hash) {
    const ParameterIndex::Place* place = index_.Find(tensor.name);
    PENSTOCK_CHECK(place != nullptr, tensor.name);
    const bool weights = file.plane == CheckpointPlane::kWeights;
    std::span<std::byte> values = std::as_writable_bytes(window);
    if (!weights) values = MomentMemory(store_, file.plane, place->block, *place->parameter);
    // Opening has compared every tensor with the layout.
    const int64_t begin = weights ? 0 : first;
    PENSTOCK_CHECK(begin + count <= static_cast<int64_t>(values.size()), tensor.name);
    values = values.subspan(begin, count);
    const int64_t offset = tensor.begin + first;
    PENSTOCK_RETURN_IF_ERROR(file.file.ReadAt(offset, values));
    file.file.Forget(offset, count);
    hash.Update(values);
    if (weights) {
      const int64_t elements = count / int64_t{sizeof(float)};
      const int64_t element = first / int64_t{sizeof(float)};
      PENSTOCK_CHECK(element + elements <= place->parameter->size, tensor.name);
      BlockStore& block = store_.block(place->block);
      const int64_t at = place->parameter->offset + element;
      SplitPlanes(window.data(), elements, block.hi.data() + at, block.lo.data() + at);
    }
    progress_.Finish(absl::OkStatus(), count);
    return absl::OkStatus();
  }

  HostStore& store_;
  const ParameterIndex index_;
  std::vector<std::vector<float>> windows_;  // by worker
  SharedProgress& progress_;
};

// What a manifest says of the run does not prove what its files hold.
absl::Status CheckSameModel(const Checkpoint& checkpoint, const ModelLayout& wanted) {
  const auto mismatch = [&](const std::string& problem) {
    return Error(absl::StatusCode::kFailedPrecondition, reason::kCheckpointMismatch,
                 absl::StrCat(checkpoint.path(), " is of another model: ", problem,
                              "; use a checkpoint of this job"),
                 {{"checkpoint", checkpoint.path()}});
  };
  const ParameterIndex index(wanted);
  int64_t found = 0;
  for (const CheckpointFile& file : checkpoint.files()) {
    if (file.plane != CheckpointPlane::kWeights) continue;
    for (const StoredTensor& tensor : file.tensors) {
      const ParameterIndex::Place* place = index.Find(tensor.name);
      if (place == nullptr || place->parameter->name != tensor.name ||
          place->parameter->shape != tensor.shape) {
        return mismatch(absl::StrCat("this job's has no ", tensor.name, " [",
                                     absl::StrJoin(tensor.shape, ", "), "]"));
      }
      found += tensor.bytes / static_cast<int64_t>(sizeof(float));
    }
  }
  if (found == wanted.parameter_count) return absl::OkStatus();
  return mismatch(
      absl::StrCat("it has ", found, " parameters; ", wanted.parameter_count, " are wanted"));
}

// Codes of one type are not those of another, and to round what a run has kept would not be going
// on with it.
absl::Status CheckSameMoments(const Checkpoint& checkpoint, MomentType wanted) {
  if (checkpoint.moment_type() == wanted) return absl::OkStatus();
  const std::string found = MomentTypeName(checkpoint.moment_type());
  return Error(absl::StatusCode::kFailedPrecondition, reason::kCheckpointMismatch,
               absl::StrCat(checkpoint.path(), " keeps its moments in ", found, ", this job in ",
                            MomentTypeName(wanted), " (precision.optimizer_state); set that to ",
                            found, ", or export the checkpoint and train from the export"),
               {{"checkpoint", checkpoint.path()},
                {"field", "precision.optimizer_state"},
                {"found", found},
                {"wanted", MomentTypeName(wanted)}});
}

}  // namespace

absl::Status LoadCheckpoint(const Checkpoint& checkpoint, HostStore& store, ThreadPool& pool,
                            ProgressFunction progress) {
  PENSTOCK_RETURN_IF_ERROR(CheckSameModel(checkpoint, store.layout()));
  const bool moments = checkpoint.has_moments() && store.has_moments();
  if (moments) PENSTOCK_RETURN_IF_ERROR(CheckSameMoments(checkpoint, store.moment_type()));
  std::vector<const CheckpointFile*> files;
  int64_t bytes = 0;
  for (const CheckpointFile& file : checkpoint.files()) {
    if (file.plane != CheckpointPlane::kWeights && !moments) continue;
    files.push_back(&file);
    for (const StoredTensor& tensor : file.tensors) bytes += tensor.bytes;
  }
  SharedProgress shared(bytes, progress);
  FileLoader loader(store, pool.size(), shared);
  pool.ParallelFor(static_cast<int64_t>(files.size()), [&](int64_t task, int worker) {
    if (shared.failed()) return;
    const absl::Status loaded = loader.Load(*files[task], worker);
    if (!loaded.ok()) shared.Finish(loaded, 0);
  });
  if (moments && shared.status().ok()) {
    store.updates_applied = checkpoint.info().updates_applied;
  }
  return shared.status();
}

}  // namespace penstock
