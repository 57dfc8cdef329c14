#include "engine/train/import.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/memory/planes.h"
#include "engine/train/weight_convert.h"

namespace penstock {
namespace {

// A run of one tensor: what a worker reads, widens and splits at a time.
struct Piece {
  const TensorLocation* tensor;
  int64_t first;
  int64_t count;
};

std::vector<Piece> CutIntoPieces(const std::vector<TensorLocation>& tensors) {
  std::vector<Piece> pieces;
  for (const TensorLocation& tensor : tensors) {
    for (int64_t first = 0; first < tensor.elements; first += kWindowElements) {
      pieces.push_back({&tensor, first, std::min(kWindowElements, tensor.elements - first)});
    }
  }
  return pieces;
}

struct Window {
  std::vector<std::byte> raw;
  std::vector<float> values;
};

class Loader {
 public:
  Loader(const std::vector<ReadableFile>& files, HostStore& store, int workers)
      : files_(files), store_(store), index_(store.layout()), windows_(workers) {}

  absl::Status Load(const Piece& piece, int worker) {
    Window& window = windows_[worker];
    window.raw.resize(kWindowElements * sizeof(float));
    window.values.resize(kWindowElements);
    const TensorLocation& tensor = *piece.tensor;
    const ParameterIndex::Place* place = index_.Find(tensor.name);
    PENSTOCK_CHECK(place != nullptr && place->parameter->size == tensor.elements, tensor.name);
    const int64_t element_bytes = BytesPerElement(tensor.type);
    const int64_t offset = tensor.offset + piece.first * element_bytes;
    const std::span<std::byte> raw(window.raw.data(), piece.count * element_bytes);
    const std::span<float> values(window.values.data(), piece.count);
    const ReadableFile& file = files_[tensor.file];
    PENSTOCK_RETURN_IF_ERROR(file.ReadAt(offset, raw));
    file.Forget(offset, piece.count * element_bytes);
    WidenWeights(tensor.type, raw.data(), values);
    PENSTOCK_RETURN_IF_ERROR(CheckFinite(piece, values));
    BlockStore& block = store_.block(place->block);
    const int64_t begin = place->parameter->offset + piece.first;
    SplitPlanes(values.data(), piece.count, block.hi.data() + begin, block.lo.data() + begin);
    return absl::OkStatus();
  }

 private:
  absl::Status CheckFinite(const Piece& piece, std::span<const float> values) const {
    const int64_t bad = FindNonFinite(values, WeightType::kFloat32);
    if (bad < 0) return absl::OkStatus();
    const TensorLocation& tensor = *piece.tensor;
    return Error(absl::StatusCode::kInvalidArgument, reason::kModelInvalid,
                 absl::StrCat(files_[tensor.file].path(), ": element ", piece.first + bad, " of ",
                              tensor.name, " is ", values[bad],
                              "; every weight must be finite: use an intact copy of the model"),
                 {{"tensor", tensor.name}});
  }

  const std::vector<ReadableFile>& files_;
  HostStore& store_;
  const ParameterIndex index_;
  std::vector<Window> windows_;  // by worker
};

}  // namespace

int64_t ImportPeakBytes(int workers) {
  return workers * kWindowElements * static_cast<int64_t>(2 * sizeof(float));
}

absl::Status ImportWeights(const ModelDirectory& directory, HostStore& store, ThreadPool& pool,
                           ProgressFunction progress) {
  const std::vector<TensorLocation>& tensors = directory.tensors();
  int64_t total_bytes = 0;
  for (const TensorLocation& tensor : tensors) {
    total_bytes += tensor.elements * BytesPerElement(tensor.type);
  }
  const std::vector<Piece> pieces = CutIntoPieces(tensors);
  Loader loader(directory.files(), store, pool.size());
  SharedProgress shared(total_bytes, progress);
  pool.ParallelFor(static_cast<int64_t>(pieces.size()), [&](int64_t task, int worker) {
    if (shared.failed()) return;
    const Piece& piece = pieces[task];
    shared.Finish(loader.Load(piece, worker), piece.count * BytesPerElement(piece.tensor->type));
  });
  return shared.status();
}

}  // namespace penstock
