#include "engine/audit/verify.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/provenance/provenance.h"
#include "engine/provenance/sha256.h"
#include "engine/provenance/signing_key.h"
#include "engine/train/rooted_file.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kWindowBytes = int64_t{4} << 20;
constexpr size_t kMaxEntries = 100'000;
constexpr int kMaxDepth = 16;    // of directories
constexpr int kMaxParents = 64;  // of a chain
constexpr size_t kShownDigits = 16;

std::string Short(const std::string& hex) { return hex.substr(0, kShownDigits) + "..."; }

absl::StatusOr<std::string> HashFile(const ReadableFile& file) {
  Sha256 hash;
  std::vector<std::byte> window(static_cast<size_t>(std::min(kWindowBytes, file.size())));
  for (int64_t at = 0; at < file.size(); at += kWindowBytes) {
    const int64_t count = std::min(kWindowBytes, file.size() - at);
    const std::span<std::byte> part = std::span(window).first(static_cast<size_t>(count));
    PENSTOCK_RETURN_IF_ERROR(file.ReadAt(at, part));
    file.Forget(at, count);
    hash.Update(part);
  }
  return HexOf(hash.Finish());
}

// What is wrong with a file that should be `wanted`; empty if nothing is.
std::string ProblemOf(const RootedDirectory& root, const HashedFile& wanted) {
  const absl::StatusOr<ReadableFile> file = root.OpenFile(wanted.name);
  if (!file.ok()) return std::string(file.status().message());
  if (file->size() != wanted.bytes) {
    return absl::StrCat(file->path(), " has ", file->size(), " bytes; ", wanted.bytes,
                        " are named");
  }
  const absl::StatusOr<std::string> found = HashFile(*file);
  if (!found.ok()) return std::string(found.status().message());
  if (*found == wanted.sha256) return "";
  return absl::StrCat(file->path(), " has SHA-256 ", *found, "; ", wanted.sha256, " is named");
}

// Files beneath `path`, relative; what is neither file nor directory is in `strange`.
struct Tree {
  std::set<std::string> files, strange;
};
absl::StatusOr<Tree> ListTree(const std::string& path) {
  Tree tree;
  std::error_code error;
  fs::recursive_directory_iterator it(path, error);
  for (const fs::recursive_directory_iterator end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().lexically_relative(path).string();
    const fs::file_status status = it->symlink_status(error);
    if (error) break;
    if (it.depth() >= kMaxDepth || tree.files.size() + tree.strange.size() >= kMaxEntries) {
      return Error(absl::StatusCode::kDataLoss, reason::kCheckpointCorrupt,
                   absl::StrCat(path, " holds more than ", kMaxEntries, " files, or more than ",
                                kMaxDepth, " directories in each other: it is no checkpoint"));
    }
    if (fs::is_directory(status)) continue;
    (fs::is_regular_file(status) ? tree.files : tree.strange).insert(name);
  }
  if (!error) return tree;
  return Error(absl::StatusCode::kUnavailable, reason::kIoError,
               absl::StrCat("cannot list ", path, ": ", error.message()), {{"file", path}});
}

// A directory with its provenance.json, read and parsed.
struct Opened {
  RootedDirectory root;
  std::string text;
  Provenance provenance;
};
absl::StatusOr<Opened> Open(const std::string& path) {
  // kWalk: follows no symbolic link; what is signed has none.
  PENSTOCK_ASSIGN_OR_RETURN(RootedDirectory root,
                            RootedDirectory::Open(path, RootedDirectory::Resolver::kWalk));
  const absl::StatusOr<ReadableFile> file = root.OpenFile(kProvenanceName);
  if (!file.ok()) {
    return Error(absl::StatusCode::kDataLoss, reason::kCheckpointCorrupt,
                 absl::StrCat(path, " has no ", kProvenanceName, " that can be read (",
                              file.status().message(),
                              "): it is no checkpoint or export of Penstock, or one of a version "
                              "that wrote none"),
                 {{"file", path}});
  }
  if (file->size() > kMaxProvenanceBytes) {
    return Error(absl::StatusCode::kDataLoss, reason::kCheckpointCorrupt,
                 absl::StrCat(file->path(), " has ", file->size(), " bytes; at most ",
                              kMaxProvenanceBytes, " are read"),
                 {{"file", file->path()}});
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::string text, file->ReadAll(kMaxProvenanceBytes));
  PENSTOCK_ASSIGN_OR_RETURN(Provenance provenance, ParseProvenance(text, file->path()));
  return Opened{std::move(root), std::move(text), std::move(provenance)};
}

class Verifier {
 public:
  Verifier(const VerifyOptions& options, VerifyReport& report)
      : options_(options), report_(report) {}

  // `child_key`: of the directory that names this one as its parent; unset for the one asked about.
  absl::Status Check(const Opened& opened, const std::string& path,
                     const std::optional<std::string>& child_key, int depth) {
    CheckSignature(opened, path, child_key);
    PENSTOCK_RETURN_IF_ERROR(CheckFiles(opened, path));
    const Provenance& provenance = opened.provenance;
    Add(Verdict::kProven, "spec", path,
        absl::StrCat("the job's spec is part of that text, with SHA-256 ",
                     Short(Sha256Of(provenance.spec))));
    if (provenance.parent) CheckParent(provenance, path, depth);
    CheckModel(provenance, path);
    CheckData(provenance, path);
    return absl::OkStatus();
  }

 private:
  void Add(Verdict verdict, const char* what, const std::string& path, std::string text) {
    report_.findings.push_back(
        {.verdict = verdict, .what = what, .path = path, .text = std::move(text)});
  }

  void CheckSignature(const Opened& opened, const std::string& path,
                      const std::optional<std::string>& child_key) {
    const std::string& key = opened.provenance.public_key;
    if (key.empty()) {
      const bool wanted = !options_.trusted_key.empty() && !child_key;
      return Add(wanted ? Verdict::kWrong : Verdict::kOpen, "signature", path,
                 "nobody has signed this: whoever changed a file may have changed its hash too");
    }
    const absl::StatusOr<ReadableFile> file = opened.root.OpenFile(kSignatureName);
    if (!file.ok()) {
      return Add(
          Verdict::kWrong, "signature", path,
          absl::StrCat(kProvenanceName, " names key ", Short(key), " as its signer, but ",
                       kSignatureName, " cannot be read: ", std::string(file.status().message())));
    }
    const absl::StatusOr<std::string> signature =
        file->size() == static_cast<int64_t>(kSignatureBytes)
            ? file->ReadAll(kSignatureBytes)
            : absl::StatusOr<std::string>(std::string());
    if (!signature.ok() || !IsSignatureOf(key, opened.text, *signature)) {
      return Add(Verdict::kWrong, "signature", path,
                 absl::StrCat(kSignatureName, " is not the signature of ", kProvenanceName,
                              " by key ", Short(key), ": one of the two was changed"));
    }
    Add(Verdict::kProven, "signature", path,
        absl::StrCat(kProvenanceName, " is what key ", Short(key), " signed"));
    CheckKey(key, path, child_key);
  }

  void CheckKey(const std::string& key, const std::string& path,
                const std::optional<std::string>& child_key) {
    const std::string& trusted = options_.trusted_key;
    if (trusted == key) return Add(Verdict::kProven, "key", path, "it is the key that was named");
    if (child_key) {
      if (*child_key == key) return;
      return Add(
          Verdict::kOpen, "key", path,
          absl::StrCat("it is another key than that of what came after it, ", Short(*child_key)));
    }
    if (!trusted.empty()) {
      return Add(Verdict::kWrong, "key", path,
                 absl::StrCat("it was signed by key ", key, ", not by the one named, ", trusted));
    }
    Add(Verdict::kOpen, "key", path,
        absl::StrCat("whose key ", key,
                     " is, is not known here: everything agrees with itself, no more; name the "
                     "key you trust with --key (penstock key show on its daemon)"));
  }

  absl::Status CheckFiles(const Opened& opened, const std::string& path) {
    const std::vector<HashedFile>& named = opened.provenance.files;
    std::vector<std::string> problems(named.size());
    options_.pool.ParallelFor(static_cast<int64_t>(named.size()), [&](int64_t task, int) {
      problems[task] = ProblemOf(opened.root, named[task]);
    });
    PENSTOCK_ASSIGN_OR_RETURN(const Tree tree, ListTree(path));
    std::set<std::string> known = {kProvenanceName};
    if (!opened.provenance.public_key.empty()) known.insert(kSignatureName);
    int64_t bytes = 0;
    for (const HashedFile& file : named) {
      known.insert(file.name);
      bytes += file.bytes;
    }
    bool wrong = false;
    const auto add_wrong = [&](std::string text) {
      wrong = true;
      Add(Verdict::kWrong, "file", path, std::move(text));
    };
    for (std::string& problem : problems) {
      if (!problem.empty()) add_wrong(std::move(problem));
    }
    for (const std::string& name : tree.files) {
      if (!known.contains(name)) {
        add_wrong(absl::StrCat(path, "/", name, " is not named in ", kProvenanceName));
      }
    }
    for (const std::string& name : tree.strange) {
      add_wrong(absl::StrCat(path, "/", name, " is a symbolic link or no file at all"));
    }
    if (!wrong) {
      Add(Verdict::kProven, "files", path,
          absl::StrCat("all ", named.size(), " files (", FormatBytes(bytes),
                       ") are those that it names, and there are no others"));
    }
    return absl::OkStatus();
  }

  void CheckParent(const Provenance& provenance, const std::string& path, int depth) {
    const ParentCheckpoint& parent = *provenance.parent;
    const std::string name = parent.name.empty() ? parent.path : parent.name;
    if (parent.provenance_sha256.empty()) {
      return Add(Verdict::kOpen, "parent", path,
                 absl::StrCat(name, ", which this came from, had no ", kProvenanceName));
    }
    if (depth >= kMaxParents) {
      return Add(Verdict::kOpen, "parent", path,
                 absl::StrCat("the chain has more than ", kMaxParents, " parents; run this on ",
                              parent.path, " for the rest"));
    }
    // Where it lay, or moved with this one; there, another may have its step.
    const std::string beside =
        (fs::path(path).parent_path() / fs::path(parent.path).filename()).string();
    bool refuted = false;
    for (const std::string& candidate : {parent.path, beside}) {
      std::error_code ignored;
      if (!fs::is_directory(candidate, ignored)) continue;
      const absl::StatusOr<Opened> opened = Open(candidate);
      if (!opened.ok() || Sha256Of(opened->text) != parent.provenance_sha256) {
        refuted |= candidate == parent.path;
        continue;
      }
      Add(Verdict::kProven, "parent", path,
          absl::StrCat(name, ", which this came from, is at ", candidate, " and its ",
                       kProvenanceName, " is the one named"));
      const absl::Status checked = Check(*opened, candidate, provenance.public_key, depth + 1);
      if (!checked.ok()) {
        Add(Verdict::kWrong, "parent", candidate, std::string(checked.message()));
      }
      return;
    }
    if (!refuted) {
      return Add(Verdict::kOpen, "parent", path,
                 absl::StrCat(name, ", which this came from, is not on this disk (it was at ",
                              parent.path, ")"));
    }
    Add(Verdict::kWrong, "parent", path,
        absl::StrCat(parent.path, " is not ", name, ", which this came from: its ", kProvenanceName,
                     " has not the SHA-256 ", Short(parent.provenance_sha256), " that is named"));
  }

  void CheckModel(const Provenance& provenance, const std::string& path) {
    if (!provenance.model) {
      if (!provenance.parent) {
        Add(Verdict::kOpen, "model", path, "no base model is named");
      }
      return;
    }
    const ModelOrigin& model = *provenance.model;
    // A chain has one base model.
    if (!models_.insert(absl::StrCat(model.path, "\n", model.files.size())).second) return;
    if (model.path.empty()) {
      return Add(Verdict::kProven, "model", path,
                 "that text says that training began with random weights");
    }
    if (!model.problem.empty()) {
      Add(Verdict::kOpen, "model", path,
          absl::StrCat("base model ", model.path, ": ", model.problem));
    }
    const absl::StatusOr<RootedDirectory> root = RootedDirectory::Open(model.path);
    if (!root.ok()) {
      return Add(Verdict::kOpen, "model", path,
                 absl::StrCat("base model ", model.path, " is not on this disk; its ",
                              model.files.size(), " files are named by their SHA-256"));
    }
    std::vector<std::string> problems(model.files.size());
    options_.pool.ParallelFor(static_cast<int64_t>(problems.size()), [&](int64_t task, int) {
      problems[task] = ProblemOf(*root, model.files[task]);
    });
    bool wrong = false;
    for (const std::string& problem : problems) {
      if (problem.empty()) continue;
      wrong = true;
      Add(Verdict::kWrong, "model", path, absl::StrCat("base model: ", problem));
    }
    if (!wrong) {
      Add(Verdict::kProven, "model", path,
          absl::StrCat("the ", model.files.size(), " files of base model ", model.path,
                       " are those that it names"));
    }
  }

  void CheckData(const Provenance& provenance, const std::string& path) {
    if (!provenance.data) return;
    Add(Verdict::kOpen, "data", path,
        absl::StrCat("trained on ", provenance.data->training,
                     "; data are not read here, and those hashes (XXH3-128) do not withstand "
                     "forgers"));
  }

  const VerifyOptions& options_;
  VerifyReport& report_;
  std::set<std::string> models_;  // that were looked at
};

}  // namespace

const char* ToString(Verdict verdict) {
  switch (verdict) {
    case Verdict::kProven:
      return "proven";
    case Verdict::kOpen:
      return "open";
    case Verdict::kWrong:
      return "wrong";
  }
  return "?";
}

bool VerifyReport::any(Verdict verdict) const {
  return std::any_of(findings.begin(), findings.end(),
                     [&](const Finding& finding) { return finding.verdict == verdict; });
}

absl::StatusOr<VerifyReport> VerifyDirectory(const std::string& path,
                                             const VerifyOptions& options) {
  std::error_code error;
  const fs::path resolved = fs::weakly_canonical(path, error);
  const std::string directory = error ? path : resolved.string();
  PENSTOCK_ASSIGN_OR_RETURN(const Opened opened, Open(directory));
  const Provenance& provenance = opened.provenance;
  VerifyReport report{.path = directory,
                      .subject = ToString(provenance.subject),
                      .job = provenance.job,
                      .step = provenance.step,
                      .attempt = provenance.attempt,
                      .public_key = provenance.public_key,
                      .provenance_sha256 = Sha256Of(opened.text),
                      .findings = {}};
  PENSTOCK_RETURN_IF_ERROR(
      Verifier(options, report).Check(opened, directory, std::nullopt, /*depth=*/0));
  return report;
}

}  // namespace penstock
