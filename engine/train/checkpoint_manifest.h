// manifest.json of a checkpoint: text to struct and back. Its last line of defence is a checksum of
// itself: a flipped digit of a step would otherwise be believed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/train/checkpoint.h"
#include "engine/train/file_writer.h"
#include "engine/train/rooted_file.h"
#include "engine/train/weight_table.h"

namespace penstock {

inline constexpr char kManifestName[] = "manifest.json";
inline constexpr char kCheckpointSourceFolder[] = "source";
inline constexpr char kCheckpointConfigName[] = "config.json";  // in that folder
inline constexpr int64_t kMaxManifestBytes = int64_t{256} << 20;

// "source/{name}"
std::string InCheckpointSource(const std::string& name);

// `source` comes without contents: entries have names and types, side files names. The files
// are those with tensors and those in source/, every name relative to the checkpoint.
struct CheckpointManifest {
  // 1: weights only; 2: without left-out data and the memory of losses; 3: moments in fp32.
  int64_t version = 4;
  CheckpointInfo info;
  MomentType moment_type = MomentType::kFloat32;
  std::vector<WrittenFile> files;
  ExportSource source;
};

std::string ManifestText(const CheckpointManifest& manifest);

// DataLoss / CHECKPOINT_CORRUPT naming `path` and what is wrong; Unimplemented /
// FEATURE_UNSUPPORTED for a manifest of a later version.
absl::StatusOr<CheckpointManifest> ParseManifest(const std::string& text, const std::string& path);

// The error of a damaged checkpoint: `file` in messages and metadata.
absl::Status CheckpointCorrupt(const std::string& file, const std::string& problem);

}  // namespace penstock
