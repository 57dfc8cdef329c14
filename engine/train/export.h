// Writes a model as a Hugging Face directory: the names, shapes, types and files that came in,
// config.json and side files verbatim. Written beside the destination and renamed
// (staged_directory.h); a failure at any point leaves nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/thread_pool.h"
#include "engine/memory/host_store.h"
#include "engine/train/import.h"
#include "engine/train/provenance_file.h"
#include "engine/train/safetensors_writer.h"
#include "engine/train/staged_directory.h"
#include "engine/train/weight_table.h"

namespace penstock {

struct ExportOptions {
  std::optional<WeightType> type = std::nullopt;  // default: what each tensor came in
  Existing existing = Existing::kRefuse;
  // Null: without provenance.json.
  const ProvenanceSource* provenance = nullptr;
  int64_t step = 0;  // that the weights are of, for provenance.json
};

// Values by Hugging Face name. Thread-safe.
class WeightReader {
 public:
  virtual ~WeightReader() = default;
  // Elements first .. first + out.size() of the tensor.
  virtual absl::Status Read(const std::string& name, int64_t first, std::span<float> out) const = 0;
};

// The fp32 masters of a store, which outlives the reader.
class StoreReader : public WeightReader {
 public:
  explicit StoreReader(const HostStore& store) : store_(store), index_(store.layout()) {}
  absl::Status Read(const std::string& name, int64_t first, std::span<float> out) const override;

 private:
  const HostStore& store_;
  ParameterIndex index_;
};

// Memory that an export or a checkpoint takes beside the store. For the memory plan.
int64_t ExportPeakBytes(int workers);

// config.json and side files are verbatim; with options.type, the type that config.json names
// follows. Values are rounded to nearest, ties to even. One that is not finite, or is not after
// rounding to a narrower type, is FailedPrecondition / NON_FINITE naming tensor and value: such a
// model would load and answer garbage.
absl::Status ExportModel(const WeightReader& weights, const ExportSource& source,
                         const std::string& destination, const ExportOptions& options,
                         ThreadPool& pool, ProgressFunction progress);

inline absl::Status ExportModel(const HostStore& store, const ExportSource& source,
                                const std::string& destination, const ExportOptions& options,
                                ThreadPool& pool, ProgressFunction progress) {
  return ExportModel(StoreReader(store), source, destination, options, pool, progress);
}

}  // namespace penstock
