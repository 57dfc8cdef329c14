// A Hugging Face model directory, opened and accounted for: every parameter of the spec is
// found exactly once, with its shape and a type we import, and nothing is left over. No weight
// is read yet, but for comparing a tied head with its table.
//
// With a model.safetensors.index.json the index decides: each tensor in the shard it names,
// no other file is read. Without one it is model.safetensors. Whatever else lies there is
// noted, not read.
//
// Tied heads. config.json decides; a stored copy must agree:
//   tied, no lm_head.weight          fine
//   tied, lm_head equal to the table fine; exported with both names, as it came
//   tied, lm_head different          refused, both names in the message
//   not tied, no lm_head             refused, both names in the message
//
// Errors are InvalidArgument or NotFound / MODEL_INVALID, Unimplemented / MODEL_UNSUPPORTED,
// PermissionDenied / PATH_NOT_ALLOWED.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/layout.h"
#include "engine/model/model_spec.h"
#include "engine/train/rooted_file.h"
#include "engine/train/weight_table.h"

namespace penstock {

// Where the values of one parameter lie.
struct TensorLocation {
  std::string name;
  WeightType type = WeightType::kFloat32;
  int64_t file = 0;    // index into files()
  int64_t offset = 0;  // in the file
  int64_t elements = 0;
};

class ModelDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<ModelDirectory>> Open(const std::string& path);

  const std::string& path() const { return source_.model_path; }
  const ModelSpec& spec() const { return spec_; }
  const ModelLayout& layout() const { return layout_; }
  // What ExportModel needs to write the same set of files again. Side files are held in memory,
  // 64 MiB each and 256 MiB together at most: the directory may be gone when a job ends.
  const ExportSource& source() const { return source_; }

  // Every parameter of the layout once, in layout order.
  const std::vector<TensorLocation>& tensors() const { return tensors_; }
  const std::vector<ReadableFile>& files() const { return files_; }
  int64_t weight_bytes() const;  // of tensors()

  // What was there and not used, a line each, for the job's log.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  friend class ModelDirectoryReader;
  ModelDirectory() = default;

  ModelSpec spec_;
  ModelLayout layout_;
  ExportSource source_;
  std::vector<TensorLocation> tensors_;
  std::vector<ReadableFile> files_;
  std::vector<std::string> notes_;
};

}  // namespace penstock
