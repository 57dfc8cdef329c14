// Writes provenance.json and its signature into a directory that is being made.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/provenance/provenance.h"
#include "engine/provenance/signing_key.h"
#include "engine/train/file_writer.h"
#include "engine/train/staged_directory.h"

namespace penstock {

// Says where what is being written comes from. Describe() may be called from the thread that writes
// a checkpoint while others train.
class ProvenanceSource {
 public:
  virtual ~ProvenanceSource() = default;
  // All but `files` and `public_key`.
  virtual Provenance Describe(ProvenanceSubject subject, int64_t step) const = 0;
  // Null: what is written is not signed.
  virtual const SigningKey* key() const = 0;
};

struct WrittenProvenance {
  int64_t bytes = 0;   // of both files
  std::string sha256;  // of provenance.json
};

// REQUIRES: `files` are all others of the directory, finished.
absl::StatusOr<WrittenProvenance> WriteProvenance(const StagedDirectory& staged,
                                                  Provenance provenance,
                                                  const std::vector<WrittenFile>& files,
                                                  const SigningKey* key);

// What is to be known of the checkpoint at `path` to name it as a parent: its name and the hash of
// its provenance.json, as far as it has one. `trusted`: what it says, if the signature is that of
// `key`, or if there is no key and no signature.
struct KnownParent {
  ParentCheckpoint parent;
  std::optional<Provenance> trusted = {};
};
KnownParent ReadParent(const std::string& path, const SigningKey* key);

}  // namespace penstock
