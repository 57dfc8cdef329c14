// Reads weights from files straight into the planes of a HostStore, in parallel.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/thread_pool.h"
#include "engine/memory/host_store.h"
#include "engine/train/model_directory.h"
#include "engine/train/progress.h"
#include "engine/train/rooted_file.h"

namespace penstock {

// Elements that one worker handles at a time, in import, checkpoint and export.
inline constexpr int64_t kWindowElements = int64_t{1} << 20;

// Memory that import (or loading a checkpoint) takes beside the store: a window of raw bytes
// and one of floats for each worker. For the memory plan.
int64_t ImportPeakBytes(int workers);

// Sets hi and lo of every parameter; gaps, m and v are left alone. A value that is not finite is
// InvalidArgument / MODEL_INVALID naming tensor and index.
// REQUIRES: the store has the directory's layout.
absl::Status ImportWeights(const ModelDirectory& directory, HostStore& store, ThreadPool& pool,
                           ProgressFunction progress);

}  // namespace penstock
