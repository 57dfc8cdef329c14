// Checks a checkpoint or an export, as it lies on a disk, against its provenance.json: the
// signature, every file, and its parents as far as they lie there too. Needs no daemon.
// docs/provenance.md says what each finding means.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/thread_pool.h"

namespace penstock {

enum class Verdict : uint8_t {
  kProven,
  kOpen,  // not proven, and not refuted: a key or a parent is not known here
  kWrong,
};
const char* ToString(Verdict verdict);  // "proven", "open", "wrong"

struct Finding {
  Verdict verdict = Verdict::kOpen;
  std::string what;  // "signature", "key", "file", "files", "spec", "parent", "model", "data"
  std::string path;  // of the directory that it is about
  std::string text;  // for people
};

struct VerifyReport {
  std::string path;
  std::string subject;  // "checkpoint", "export"
  std::string job;
  int64_t step = 0;
  int64_t attempt = 0;
  std::string public_key;  // that provenance.json names; empty: none
  std::string provenance_sha256;
  std::vector<Finding> findings;

  bool any(Verdict verdict) const;
};

struct VerifyOptions {
  std::string trusted_key;  // in hexadecimal; empty: any key that signed will do
  ThreadPool& pool;         // its threads hash a file each
};

// Reads every byte of the directory, of the parents that are found and of the base model.
// An error, not a report, if there is nothing to check against: DataLoss / CHECKPOINT_CORRUPT for a
// directory without provenance.json, or with one that is none; Unimplemented / FEATURE_UNSUPPORTED
// for a later version's.
absl::StatusOr<VerifyReport> VerifyDirectory(const std::string& path, const VerifyOptions& options);

}  // namespace penstock
