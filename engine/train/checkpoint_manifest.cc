#include "engine/train/checkpoint_manifest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/model/config_fields.h"
#include "engine/model/strict_json.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr char kFormat[] = "penstock-weights";
constexpr int64_t kFormatVersion = 4;
constexpr char kChecksum[] = "manifest_xxh3_64";
constexpr int64_t kMaxNumber = std::numeric_limits<int64_t>::max();
// Of steps and tokens: far above any run, and far from where adding to it overflows.
constexpr int64_t kMaxCount = int64_t{1} << 60;
constexpr double kLargest = std::numeric_limits<double>::max();

json SourceToJson(const ExportSource& source) {
  json files = json::array();
  for (const WeightFile& file : source.files) {
    json entries = json::array();
    for (const WeightEntry& entry : file.entries) {
      entries.push_back({{"name", entry.name}, {"type", ToString(entry.type)}});
    }
    files.push_back({{"name", file.name}, {"entries", std::move(entries)}});
  }
  json side_files = json::array();
  for (const SideFile& side_file : source.side_files) side_files.push_back(side_file.name);
  return {{"model_path", source.model_path},
          {"indexed", source.indexed},
          {"files", std::move(files)},
          {"side_files", std::move(side_files)}};
}

// The list `key`, every member an object: calls body(ConfigFields) for each.
template <typename Body>
absl::Status ForEachObject(const ConfigFields& parent, absl::string_view key, Body body) {
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

std::string TextOf(const json& root) {
  // A path may hold bytes that are not UTF-8; a checkpoint must not fail on them.
  return root.dump(1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

// Of the manifest without its checksum. Keys are sorted, so a parsed text gives itself again.
std::string ChecksumOf(const json& root) {
  const std::string text = TextOf(root);
  StreamHash hash;
  hash.Update(std::as_bytes(std::span(text)));
  return absl::StrFormat("%016x", hash.Digest());
}

absl::Status CheckChecksum(const ConfigFields& fields) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string wanted, fields.String(kChecksum));
  json rest = fields.object();
  rest.erase(kChecksum);
  const std::string found = ChecksumOf(rest);
  if (found == wanted) return absl::OkStatus();
  return fields.Invalid(kChecksum, absl::StrCat("is ", wanted, ", but the content has ", found,
                                                ": the manifest was changed"));
}

absl::Status ReadTextMap(const ConfigFields& root, const char* key,
                         std::map<std::string, std::string>& map) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto fields, root.OptionalObject(key));
  if (!fields) return root.Wanted(key, "an object");
  for (const auto& [name, value] : fields->object().items()) {
    PENSTOCK_ASSIGN_OR_RETURN(map[name], fields->String(name));
  }
  return absl::OkStatus();
}

json TextMapToJson(const std::map<std::string, std::string>& map) {
  return json(json::object_t(map.begin(), map.end()));
}

// What version 3 lacked: its moments are fp32.
absl::Status ReadMomentType(const ConfigFields& root, MomentType& type) {
  constexpr char kKey[] = "optimizer_state";
  PENSTOCK_ASSIGN_OR_RETURN(const std::string name, root.String(kKey));
  const auto known = std::find_if(kMomentTypes.begin(), kMomentTypes.end(),
                                  [&](MomentType each) { return name == MomentTypeName(each); });
  if (known == kMomentTypes.end()) {
    return root.Wanted(kKey, "float32, bfloat16 or int8_blocks");
  }
  type = *known;
  return absl::OkStatus();
}

// What version 2 lacked. A program that does not know it would go on with other data.
absl::Status ReadSpikes(const ConfigFields& root, CheckpointInfo& info) {
  PENSTOCK_ASSIGN_OR_RETURN(info.left_out_data_steps,
                            root.Integer("left_out_data_steps", 0, kMaxCount));
  PENSTOCK_ASSIGN_OR_RETURN(const auto memory, root.OptionalObject("loss_memory"));
  if (!memory) return root.Wanted("loss_memory", "an object");
  LossMemory& losses = info.loss_memory;
  PENSTOCK_ASSIGN_OR_RETURN(losses.losses, memory->Integer("losses", 0, kMaxCount));
  PENSTOCK_ASSIGN_OR_RETURN(losses.mean, memory->Number("mean", -kLargest, kLargest));
  PENSTOCK_ASSIGN_OR_RETURN(losses.variance, memory->Number("variance", 0, kLargest));
  PENSTOCK_ASSIGN_OR_RETURN(losses.in_spike, memory->Bool("in_spike", false));
  return absl::OkStatus();
}

// What version 1 lacked.
absl::Status ReadRun(const ConfigFields& root, CheckpointInfo& info) {
  PENSTOCK_ASSIGN_OR_RETURN(info.nonfinite_streak, root.Integer("nonfinite_streak", 0, info.step));
  PENSTOCK_ASSIGN_OR_RETURN(info.evaluation_due, root.Bool("evaluation_due", false));
  PENSTOCK_ASSIGN_OR_RETURN(info.evaluation_loss,
                            root.OptionalNumber("evaluation_loss", -kLargest, kLargest));
  PENSTOCK_ASSIGN_OR_RETURN(const auto best, root.OptionalObject("best_evaluation"));
  if (best) {
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t step, best->Integer("step", 0, info.step));
    PENSTOCK_ASSIGN_OR_RETURN(const double loss, best->Number("loss", -kLargest, kLargest));
    info.best = {.step = step, .loss = loss};
  }
  PENSTOCK_RETURN_IF_ERROR(ReadTextMap(root, "identity", info.facts.identity));
  return ReadTextMap(root, "rounding", info.facts.rounding);
}

absl::Status ReadInfo(const ConfigFields& root, CheckpointInfo& info) {
  PENSTOCK_ASSIGN_OR_RETURN(info.step, root.Integer("step", 0, kMaxCount));
  PENSTOCK_ASSIGN_OR_RETURN(info.tokens, root.Integer("tokens", 0, kMaxCount));
  PENSTOCK_ASSIGN_OR_RETURN(info.updates_applied, root.Integer("updates_applied", 0, info.step));
  PENSTOCK_ASSIGN_OR_RETURN(info.code_version, root.String("code_version"));
  PENSTOCK_ASSIGN_OR_RETURN(info.loss, root.OptionalNumber("loss", -kLargest, kLargest));
  return absl::OkStatus();
}

absl::Status ReadFiles(const ConfigFields& root, std::vector<WrittenFile>& files) {
  return ForEachObject(root, "files", [&](const ConfigFields& fields) -> absl::Status {
    WrittenFile file;
    PENSTOCK_ASSIGN_OR_RETURN(file.name, fields.String("name"));
    PENSTOCK_ASSIGN_OR_RETURN(file.bytes, fields.Integer("bytes", 0, kMaxNumber));
    PENSTOCK_ASSIGN_OR_RETURN(const std::string hash, fields.String("xxh3_64"));
    if (hash.size() != 16 || !absl::SimpleHexAtoi(hash, &file.xxh3)) {
      return fields.Wanted("xxh3_64", "16 hexadecimal digits");
    }
    files.push_back(std::move(file));
    return absl::OkStatus();
  });
}

absl::Status ReadSource(const ConfigFields& root, ExportSource& source) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto fields, root.OptionalObject("source"));
  if (!fields) return root.Wanted("source", "an object");
  PENSTOCK_ASSIGN_OR_RETURN(source.model_path, fields->String("model_path"));
  PENSTOCK_ASSIGN_OR_RETURN(source.indexed, fields->Bool("indexed", false));
  const json* side_files = fields->Find("side_files");
  if (side_files == nullptr || !side_files->is_array()) {
    return fields->Wanted("side_files", "a list");
  }
  for (const json& name : *side_files) {
    if (!name.is_string() || !IsPlainFileName(name.get_ref<const std::string&>())) {
      return fields->Invalid("side_files", "holds what is no plain file name");
    }
    source.side_files.push_back({.name = name.get<std::string>(), .content = ""});
  }
  return ForEachObject(*fields, "files", [&](const ConfigFields& file) -> absl::Status {
    WeightFile& weight_file = source.files.emplace_back();
    PENSTOCK_ASSIGN_OR_RETURN(weight_file.name, file.String("name"));
    if (!IsPlainFileName(weight_file.name)) return file.Wanted("name", "a plain file name");
    return ForEachObject(file, "entries", [&](const ConfigFields& entry) -> absl::Status {
      WeightEntry& weight = weight_file.entries.emplace_back();
      PENSTOCK_ASSIGN_OR_RETURN(weight.name, entry.String("name"));
      PENSTOCK_ASSIGN_OR_RETURN(const std::string type, entry.String("type"));
      const std::optional<WeightType> known = WeightTypeFromString(type);
      if (!known) return entry.Wanted("type", "F32, F16 or BF16");
      weight.type = *known;
      return absl::OkStatus();
    });
  });
}

absl::Status ReadManifest(const ConfigFields& root, CheckpointManifest& manifest) {
  if (manifest.version > 1) PENSTOCK_RETURN_IF_ERROR(CheckChecksum(root));
  PENSTOCK_RETURN_IF_ERROR(ReadInfo(root, manifest.info));
  if (manifest.version > 1) PENSTOCK_RETURN_IF_ERROR(ReadRun(root, manifest.info));
  if (manifest.version > 2) PENSTOCK_RETURN_IF_ERROR(ReadSpikes(root, manifest.info));
  if (manifest.version > 3) PENSTOCK_RETURN_IF_ERROR(ReadMomentType(root, manifest.moment_type));
  PENSTOCK_RETURN_IF_ERROR(ReadFiles(root, manifest.files));
  return ReadSource(root, manifest.source);
}

}  // namespace

absl::Status CheckpointCorrupt(const std::string& file, const std::string& problem) {
  return Error(absl::StatusCode::kDataLoss, reason::kCheckpointCorrupt,
               absl::StrCat(file, ": ", problem, "; use another checkpoint"), {{"file", file}});
}

std::string InCheckpointSource(const std::string& name) {
  return absl::StrCat(kCheckpointSourceFolder, "/", name);
}

std::string ManifestText(const CheckpointManifest& manifest) {
  json files = json::array();
  for (const WrittenFile& file : manifest.files) {
    files.push_back({{"name", file.name},
                     {"bytes", file.bytes},
                     {"xxh3_64", absl::StrFormat("%016x", file.xxh3)}});
  }
  const CheckpointInfo& info = manifest.info;
  json root = {{"format", kFormat},
               {"format_version", kFormatVersion},
               {"code_version", info.code_version},
               {"step", info.step},
               {"tokens", info.tokens},
               {"updates_applied", info.updates_applied},
               {"loss", info.loss ? json(*info.loss) : json()},
               {"nonfinite_streak", info.nonfinite_streak},
               {"evaluation_due", info.evaluation_due},
               {"evaluation_loss", info.evaluation_loss ? json(*info.evaluation_loss) : json()},
               {"best_evaluation",
                info.best ? json{{"step", info.best->step}, {"loss", info.best->loss}} : json()},
               {"left_out_data_steps", info.left_out_data_steps},
               {"loss_memory",
                {{"losses", info.loss_memory.losses},
                 {"mean", info.loss_memory.mean},
                 {"variance", info.loss_memory.variance},
                 {"in_spike", info.loss_memory.in_spike}}},
               {"optimizer_state", MomentTypeName(manifest.moment_type)},
               {"identity", TextMapToJson(info.facts.identity)},
               {"rounding", TextMapToJson(info.facts.rounding)},
               {"files", std::move(files)},
               {"source", SourceToJson(manifest.source)}};
  root[kChecksum] = ChecksumOf(root);
  return absl::StrCat(TextOf(root), "\n");
}

absl::StatusOr<CheckpointManifest> ParseManifest(const std::string& text, const std::string& path) {
  const absl::StatusOr<json> root = ParseStrictJson(
      text, "the manifest", {.max_bytes = kMaxManifestBytes}, reason::kCheckpointCorrupt);
  if (!root.ok()) return CheckpointCorrupt(path, std::string(root.status().message()));
  if (!root->is_object() || !root->contains("format") || (*root)["format"] != kFormat) {
    return CheckpointCorrupt(path, absl::StrCat("is no manifest of format \"", kFormat, "\""));
  }
  const ConfigFields fields(*root, "");
  const absl::StatusOr<int64_t> version = fields.Integer("format_version", 1, kMaxNumber);
  if (!version.ok()) return CheckpointCorrupt(path, std::string(version.status().message()));
  if (*version > kFormatVersion) {
    return Error(absl::StatusCode::kUnimplemented, reason::kFeatureUnsupported,
                 absl::StrCat(path, ": format_version is ", *version, "; this program reads up to ",
                              kFormatVersion, ": use the one that wrote the checkpoint"));
  }
  CheckpointManifest manifest{
      .version = *version, .info = {}, .moment_type = {}, .files = {}, .source = {}};
  if (const absl::Status status = ReadManifest(fields, manifest); !status.ok()) {
    return CheckpointCorrupt(path, std::string(status.message()));
  }
  return manifest;
}

}  // namespace penstock
