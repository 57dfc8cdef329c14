// The weights of a checkpoint, or of a Hugging Face directory, as tensors by name. Nothing of the
// model is known, so any set of safetensors files will do.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/train/rooted_file.h"
#include "engine/train/weight_table.h"

namespace penstock {

struct StoredWeights {
  std::string name;
  WeightType type = WeightType::kFloat32;
  std::vector<int64_t> shape;
  int64_t elements = 0;
  int64_t file = 0;    // index into files()
  int64_t offset = 0;  // in the file
};

class WeightsDirectory {
 public:
  // A checkpoint's weights without its moments; the shards that an index names, or
  // model.safetensors. InvalidArgument / MODEL_INVALID for anything else, Unimplemented /
  // MODEL_UNSUPPORTED for a tensor that is not F32, F16 or BF16.
  static absl::StatusOr<WeightsDirectory> Open(const std::string& path);

  // By name, each once.
  const std::vector<StoredWeights>& tensors() const { return tensors_; }

  // Elements first .. first + out.size() as fp32, exactly. `raw` is room for their bytes.
  absl::Status Read(const StoredWeights& tensor, int64_t first, std::span<float> out,
                    std::vector<std::byte>& raw) const;

 private:
  WeightsDirectory() = default;
  absl::Status AddFile(ReadableFile file);
  std::vector<ReadableFile> files_;
  std::vector<StoredWeights> tensors_;
};

}  // namespace penstock
