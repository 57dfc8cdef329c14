// provenance.json: where a checkpoint or an export comes from, to the byte. docs/provenance.md has
// the format.
//
//   provenance.json   what this is, every other file with its SHA-256, and its parents: the base
//                     model, the data, the job's spec, the checkpoint that the run went on from
//   provenance.sig    the 64 bytes of the Ed25519 signature of provenance.json
//
// The text is canonical: one struct has one text, and a text that is not the one of its struct is
// refused. So whoever names a provenance.json by its hash has named everything that it names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

inline constexpr char kProvenanceName[] = "provenance.json";
inline constexpr char kSignatureName[] = "provenance.sig";
inline constexpr int64_t kMaxProvenanceBytes = int64_t{64} << 20;

enum class ProvenanceSubject : uint8_t { kCheckpoint, kExport };
const char* ToString(ProvenanceSubject subject);  // "checkpoint", "export"

// Hashes are SHA-256 in hexadecimal.
struct HashedFile {
  std::string name;  // relative to the directory
  int64_t bytes = 0;
  std::string sha256;
};

// The model that training started from, at step 0.
struct ModelOrigin {
  std::string path;               // empty: a random initialisation, of which config.json is all
  std::vector<HashedFile> files;  // by name
  // Why hashes are missing; empty if none is.
  std::string problem = {};
};

struct DataOrigin {
  struct Source {
    std::string name;  // for people
    std::string use;   // "training", "evaluation"
    std::string
        token_cache;  // key of the token cache: a hash of the files' content and the encoding
  };
  std::string training;  // what was trained on, as the run's facts have it: counts and a hash
  std::string encoding;  // hash of tokenizer, chat template and rules
  std::vector<Source> sources;
};

struct ParentCheckpoint {
  std::string name;               // jobs/{id}/checkpoints/{step}; empty if it does not say
  std::string path;               // where it lay
  std::string provenance_sha256;  // of its provenance.json; empty if it had none
};

struct Provenance {
  ProvenanceSubject subject = ProvenanceSubject::kCheckpoint;
  std::string job;
  int64_t attempt = 0;
  int64_t step = 0;
  std::string code_version;
  std::string public_key;  // that signs this; empty: nobody
  std::vector<HashedFile> files;
  // What the run went on from, or what was exported. Unset: the run began with `model`.
  std::optional<ParentCheckpoint> parent = {};
  // Unset where only the parent knows.
  std::optional<ModelOrigin> model = {};
  std::optional<DataOrigin> data = {};
  std::string spec = {};  // of the job, resolved, as text
};

// Files are put in the order of their names; bytes that are not UTF-8 become U+FFFD.
std::string ProvenanceText(Provenance provenance);

// DataLoss / CHECKPOINT_CORRUPT naming `path` and what is wrong; Unimplemented /
// FEATURE_UNSUPPORTED for a later version's.
absl::StatusOr<Provenance> ParseProvenance(std::string_view text, const std::string& path);

// jobs/{id}/checkpoints/{step}; empty without a job.
std::string CheckpointNameOf(const Provenance& provenance);

}  // namespace penstock
