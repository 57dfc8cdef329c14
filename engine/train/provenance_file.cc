#include "engine/train/provenance_file.h"

#include <utility>

#include "engine/base/status.h"
#include "engine/train/rooted_file.h"

namespace penstock {

absl::StatusOr<WrittenProvenance> WriteProvenance(const StagedDirectory& staged,
                                                  Provenance provenance,
                                                  const std::vector<WrittenFile>& files,
                                                  const SigningKey* key) {
  provenance.files.clear();
  for (const WrittenFile& file : files) {
    provenance.files.push_back({.name = file.name, .bytes = file.bytes, .sha256 = file.sha256});
  }
  provenance.public_key = key == nullptr ? "" : key->public_key();
  const std::string text = ProvenanceText(std::move(provenance));
  PENSTOCK_ASSIGN_OR_RETURN(
      const WrittenFile written,
      WriteWholeFile(staged.fd(), staged.destination(), kProvenanceName, text));
  WrittenProvenance result{.bytes = written.bytes, .sha256 = written.sha256};
  if (key == nullptr) return result;
  PENSTOCK_ASSIGN_OR_RETURN(
      const WrittenFile signature,
      WriteWholeFile(staged.fd(), staged.destination(), kSignatureName, key->Sign(text)));
  result.bytes += signature.bytes;
  return result;
}

KnownParent ReadParent(const std::string& path, const SigningKey* key) {
  KnownParent known{.parent = {.name = "", .path = path, .provenance_sha256 = ""}};
  const absl::StatusOr<RootedDirectory> root = RootedDirectory::Open(path);
  if (!root.ok()) return known;
  const absl::StatusOr<ReadableFile> file = root->OpenFile(kProvenanceName);
  if (!file.ok()) return known;
  const absl::StatusOr<std::string> text = file->ReadAll(kMaxProvenanceBytes);
  if (!text.ok()) return known;
  known.parent.provenance_sha256 = Sha256Of(*text);
  absl::StatusOr<Provenance> provenance = ParseProvenance(*text, file->path());
  if (!provenance.ok()) return known;
  known.parent.name = CheckpointNameOf(*provenance);
  if (provenance->public_key != (key == nullptr ? "" : key->public_key())) return known;
  if (key != nullptr) {
    const absl::StatusOr<ReadableFile> signature = root->OpenFile(kSignatureName);
    if (!signature.ok() || signature->size() != static_cast<int64_t>(kSignatureBytes)) return known;
    const absl::StatusOr<std::string> bytes = signature->ReadAll(kSignatureBytes);
    if (!bytes.ok() || !IsSignatureOf(key->public_key(), *text, *bytes)) return known;
  }
  known.trusted = *std::move(provenance);
  return known;
}

}  // namespace penstock
