#include "engine/provenance/provenance.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "engine/model/config_fields.h"
#include "engine/model/strict_json.h"
#include "engine/provenance/sha256.h"
#include "nlohmann/json.hpp"

namespace penstock {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr char kFormat[] = "penstock-provenance";
constexpr int64_t kFormatVersion = 1;
constexpr int64_t kMaxNumber = std::numeric_limits<int64_t>::max();
// Some thousand files with three fields each are usual.
constexpr int64_t kMaxValues = 2'000'000;
constexpr int kMaxDepth = 8;
constexpr size_t kHashDigits = 64;

ordered_json FilesToJson(std::vector<HashedFile> files) {
  std::sort(files.begin(), files.end(),
            [](const HashedFile& a, const HashedFile& b) { return a.name < b.name; });
  ordered_json list = ordered_json::array();
  for (const HashedFile& file : files) {
    list.push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  }
  return list;
}

ordered_json ModelToJson(const std::optional<ModelOrigin>& model) {
  if (!model) return nullptr;
  return {{"path", model->path}, {"files", FilesToJson(model->files)}, {"problem", model->problem}};
}

ordered_json DataToJson(const std::optional<DataOrigin>& data) {
  if (!data) return nullptr;
  ordered_json sources = ordered_json::array();
  for (const DataOrigin::Source& source : data->sources) {
    sources.push_back(
        {{"name", source.name}, {"use", source.use}, {"token_cache", source.token_cache}});
  }
  return {
      {"training", data->training}, {"encoding", data->encoding}, {"sources", std::move(sources)}};
}

ordered_json ParentToJson(const std::optional<ParentCheckpoint>& parent) {
  if (!parent) return nullptr;
  return {{"name", parent->name},
          {"path", parent->path},
          {"provenance_sha256", parent->provenance_sha256}};
}

bool IsHash(const std::string& text) { return BytesOfHex(text, kHashDigits / 2).has_value(); }

// A hash, or nothing.
absl::StatusOr<std::string> ReadOptionalHash(const ConfigFields& fields, const char* key) {
  PENSTOCK_ASSIGN_OR_RETURN(std::string hash, fields.String(key));
  if (hash.empty() || IsHash(hash)) return hash;
  return fields.Wanted(key, "64 lower-case hexadecimal digits, or none");
}

// The list `key`, every member an object: calls body(ConfigFields) for each.
template <typename Body>
absl::Status ForEachObject(const ConfigFields& parent, const char* key, Body body) {
  const json* list = parent.Find(key);
  if (list == nullptr || !list->is_array()) return parent.Wanted(key, "a list");
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string name = absl::StrCat(key, "[", i, "]");
    if (!(*list)[i].is_object()) return parent.Invalid(name, "is no object");
    PENSTOCK_RETURN_IF_ERROR(
        body(ConfigFields((*list)[i], absl::StrCat(parent.where(), name, "."))));
  }
  return absl::OkStatus();
}

absl::Status ReadFiles(const ConfigFields& parent, std::vector<HashedFile>& files) {
  return ForEachObject(parent, "files", [&](const ConfigFields& fields) -> absl::Status {
    HashedFile file;
    PENSTOCK_ASSIGN_OR_RETURN(file.name, fields.String("name"));
    PENSTOCK_ASSIGN_OR_RETURN(file.bytes, fields.Integer("bytes", 0, kMaxNumber));
    PENSTOCK_ASSIGN_OR_RETURN(file.sha256, fields.String("sha256"));
    if (!IsHash(file.sha256)) return fields.Wanted("sha256", "64 lower-case hexadecimal digits");
    if (!files.empty() && files.back().name >= file.name) {
      return fields.Invalid("name", "is not after the one before it");
    }
    files.push_back(std::move(file));
    return absl::OkStatus();
  });
}

absl::Status ReadParents(const ConfigFields& root, Provenance& provenance) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto parents, root.OptionalObject("parents"));
  if (!parents) return root.Wanted("parents", "an object");
  PENSTOCK_ASSIGN_OR_RETURN(const auto checkpoint, parents->OptionalObject("checkpoint"));
  if (checkpoint) {
    ParentCheckpoint& parent = provenance.parent.emplace();
    PENSTOCK_ASSIGN_OR_RETURN(parent.name, checkpoint->String("name"));
    PENSTOCK_ASSIGN_OR_RETURN(parent.path, checkpoint->String("path"));
    PENSTOCK_ASSIGN_OR_RETURN(parent.provenance_sha256,
                              ReadOptionalHash(*checkpoint, "provenance_sha256"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const auto model, parents->OptionalObject("model"));
  if (model) {
    ModelOrigin& origin = provenance.model.emplace();
    PENSTOCK_ASSIGN_OR_RETURN(origin.path, model->String("path"));
    PENSTOCK_RETURN_IF_ERROR(ReadFiles(*model, origin.files));
    PENSTOCK_ASSIGN_OR_RETURN(origin.problem, model->String("problem"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const auto data, parents->OptionalObject("data"));
  if (!data) return absl::OkStatus();
  DataOrigin& origin = provenance.data.emplace();
  PENSTOCK_ASSIGN_OR_RETURN(origin.training, data->String("training"));
  PENSTOCK_ASSIGN_OR_RETURN(origin.encoding, data->String("encoding"));
  return ForEachObject(*data, "sources", [&](const ConfigFields& fields) -> absl::Status {
    DataOrigin::Source& source = origin.sources.emplace_back();
    PENSTOCK_ASSIGN_OR_RETURN(source.name, fields.String("name"));
    PENSTOCK_ASSIGN_OR_RETURN(source.use, fields.String("use"));
    PENSTOCK_ASSIGN_OR_RETURN(source.token_cache, fields.String("token_cache"));
    return absl::OkStatus();
  });
}

absl::Status ReadRoot(const ConfigFields& root, Provenance& provenance) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string what, root.String("what"));
  if (what != "checkpoint" && what != "export") {
    return root.Wanted("what", "\"checkpoint\" or \"export\"");
  }
  provenance.subject =
      what == "export" ? ProvenanceSubject::kExport : ProvenanceSubject::kCheckpoint;
  PENSTOCK_ASSIGN_OR_RETURN(provenance.job, root.String("job"));
  PENSTOCK_ASSIGN_OR_RETURN(provenance.attempt, root.Integer("attempt", 0, kMaxNumber));
  PENSTOCK_ASSIGN_OR_RETURN(provenance.step, root.Integer("step", 0, kMaxNumber));
  PENSTOCK_ASSIGN_OR_RETURN(provenance.code_version, root.String("code_version"));
  PENSTOCK_ASSIGN_OR_RETURN(provenance.public_key, ReadOptionalHash(root, "public_key"));
  PENSTOCK_RETURN_IF_ERROR(ReadFiles(root, provenance.files));
  PENSTOCK_RETURN_IF_ERROR(ReadParents(root, provenance));
  PENSTOCK_ASSIGN_OR_RETURN(const auto spec, root.OptionalObject("job_spec"));
  if (!spec) return root.Wanted("job_spec", "an object");
  PENSTOCK_ASSIGN_OR_RETURN(provenance.spec, spec->String("text"));
  return absl::OkStatus();
}

absl::Status Corrupt(const std::string& path, absl::string_view problem) {
  return Error(absl::StatusCode::kDataLoss, reason::kCheckpointCorrupt,
               absl::StrCat(path, ": ", problem), {{"file", path}});
}

}  // namespace

const char* ToString(ProvenanceSubject subject) {
  return subject == ProvenanceSubject::kExport ? "export" : "checkpoint";
}

std::string ProvenanceText(Provenance provenance) {
  const std::string spec = ReplaceInvalidUtf8(provenance.spec);
  const ordered_json root = {{"format", kFormat},
                             {"format_version", kFormatVersion},
                             {"what", ToString(provenance.subject)},
                             {"job", provenance.job},
                             {"attempt", provenance.attempt},
                             {"step", provenance.step},
                             {"code_version", provenance.code_version},
                             {"public_key", provenance.public_key},
                             {"files", FilesToJson(std::move(provenance.files))},
                             {"parents",
                              {{"checkpoint", ParentToJson(provenance.parent)},
                               {"model", ModelToJson(provenance.model)},
                               {"data", DataToJson(provenance.data)}}},
                             {"job_spec", {{"sha256", Sha256Of(spec)}, {"text", spec}}}};
  return absl::StrCat(
      root.dump(1, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace), "\n");
}

absl::StatusOr<Provenance> ParseProvenance(std::string_view text, const std::string& path) {
  const absl::string_view view(text.data(), text.size());
  const absl::StatusOr<json> root = ParseStrictJson(
      view, "the text",
      {.max_bytes = kMaxProvenanceBytes, .max_depth = kMaxDepth, .max_values = kMaxValues},
      reason::kCheckpointCorrupt);
  if (!root.ok()) return Corrupt(path, root.status().message());
  if (!root->is_object() || !root->contains("format") || (*root)["format"] != kFormat) {
    return Corrupt(path, absl::StrCat("is not of format \"", kFormat, "\""));
  }
  const ConfigFields fields(*root, "");
  const absl::StatusOr<int64_t> version = fields.Integer("format_version", 1, kMaxNumber);
  if (!version.ok()) return Corrupt(path, version.status().message());
  if (*version > kFormatVersion) {
    return Error(absl::StatusCode::kUnimplemented, reason::kFeatureUnsupported,
                 absl::StrCat(path, ": format_version is ", *version, "; this program reads up to ",
                              kFormatVersion, ": use the one that wrote it"));
  }
  Provenance provenance;
  if (const absl::Status status = ReadRoot(fields, provenance); !status.ok()) {
    return Corrupt(path, status.message());
  }
  // Whatever the struct does not hold, the hash of the spec among it, is compared here.
  if (ProvenanceText(provenance) != text) {
    return Corrupt(path, "is not in canonical form: it was changed, or is not by this program");
  }
  return provenance;
}

std::string CheckpointNameOf(const Provenance& provenance) {
  return provenance.job.empty() ? ""
                                : absl::StrCat(provenance.job, "/checkpoints/", provenance.step);
}

}  // namespace penstock
