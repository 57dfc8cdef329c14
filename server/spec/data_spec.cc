#include "server/spec/data_spec.h"

#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/data/dataset_info.h"
#include "engine/train/rooted_file.h"
#include "server/spec/dataset_format.h"
#include "server/spec/spec_fields.h"

namespace penstock::server {
namespace {

constexpr int kMaxPaths = 10000;
constexpr int kMaxDatasets = 64;
constexpr double kMaxDatasetWeight = 1000;
constexpr int64_t kMaxRows = int64_t{1} << 40;
constexpr int64_t kMaxTemplateBytes = int64_t{1} << 20;
constexpr size_t kMaxArgumentsBytes = 64 * 1024;
constexpr int64_t kDaySeconds = 24 * 3600;

using Roots = std::vector<std::string>;
using Datasets = google::protobuf::RepeatedPtrField<v1::DatasetSpec>;
using Paths = google::protobuf::RepeatedPtrField<std::string>;

bool IsTokenIds(v1::DataFormat format) { return format == v1::DATA_FORMAT_TOKEN_IDS_JSONL; }
// Examples with an answer, or what may turn out to be some.
bool IsExamples(v1::DataFormat format) {
  return format != v1::DATA_FORMAT_TEXT && format != v1::DATA_FORMAT_TEXT_ROWS &&
         !IsTokenIds(format);
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// Every path resolved, with the files of a directory in its place.
absl::Status ResolvePaths(const std::string& field, const Roots& roots, Paths& paths) {
  Paths resolved;
  for (int i = 0; i < paths.size(); ++i) {
    const std::string here = absl::StrCat(field, "[", i, "]");
    PENSTOCK_ASSIGN_OR_RETURN(std::string path, CheckPath(here, paths[i], roots));
    if (!IsDirectory(path)) {
      *resolved.Add() = std::move(path);
    } else {
      const absl::StatusOr<RootedDirectory> directory = RootedDirectory::Open(path);
      if (!directory.ok()) return AtField(directory.status(), here);
      const absl::StatusOr<std::vector<std::string>> names = directory->List();
      if (!names.ok()) return AtField(names.status(), here);
      for (const std::string& name : *names) {
        const std::string file = absl::StrCat(path, "/", name);
        if (name[0] == '.' || IsDirectory(file)) continue;
        PENSTOCK_ASSIGN_OR_RETURN(*resolved.Add(), CheckPath(here, file, roots));
      }
    }
    if (resolved.size() > kMaxPaths) {
      return FieldError(field, absl::StrCat("more than ", kMaxPaths, " files"),
                        absl::StrCat("at most ", kMaxPaths));
    }
  }
  paths.Swap(&resolved);
  return absl::OkStatus();
}

absl::Status ResolveTextDocuments(const std::string& field, v1::DataFormat format,
                                  v1::TextDocuments* documents) {
  PENSTOCK_RETURN_IF_ERROR(CheckEnum(field, v1::TextDocuments_descriptor(), *documents));
  if (format == v1::DATA_FORMAT_TEXT) {
    if (*documents == v1::TEXT_DOCUMENTS_UNSPECIFIED) *documents = v1::TEXT_DOCUMENTS_WHOLE_FILE;
    return absl::OkStatus();
  }
  if (*documents == v1::TEXT_DOCUMENTS_UNSPECIFIED) return absl::OkStatus();
  return UnusedFieldError(field, "unless the format is text: each row is a document");
}

// Puts what an entry of a dataset_info.json says into the dataset's own fields.
absl::Status ResolveDatasetInfo(const std::string& field, const Roots& roots,
                                v1::DatasetSpec& dataset) {
  const std::string here = absl::StrCat(field, ".dataset_info");
  if (dataset.format() != v1::DATA_FORMAT_UNSPECIFIED || !dataset.paths().empty() ||
      dataset.has_columns() || dataset.has_tags() || dataset.max_rows() != 0 ||
      dataset.has_alternate_turns()) {
    return FieldError(field, "dataset_info together with settings that it decides",
                      "dataset_info alone, or without it format, paths, columns and so on");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text,
                            ReadFileAt(absl::StrCat(here, ".path"), dataset.dataset_info().path(),
                                       roots, kMaxDatasetInfoBytes));
  const std::string path = dataset.dataset_info().path();
  const absl::StatusOr<DatasetInfo> info =
      ParseDatasetInfo(text, path, dataset.dataset_info().name());
  if (!info.ok()) return AtField(info.status(), here);
  SetFormat(*info, dataset);
  // An absolute file_name stands for itself.
  const std::filesystem::path file = std::filesystem::path(path).parent_path() / info->file_name;
  *dataset.add_paths() = file.string();
  if (dataset.name().empty()) dataset.set_name(dataset.dataset_info().name());
  dataset.clear_dataset_info();
  return absl::OkStatus();
}

absl::Status CheckRowSettings(const std::string& field, v1::DatasetSpec& dataset) {
  if (ToRowFormat(dataset.format())) return MakeFormat(field, dataset).status();
  const char* needs = dataset.format() == v1::DATA_FORMAT_AUTO
                          ? "with the format auto; name the format"
                          : "on files that have no rows with columns";
  if (dataset.has_columns()) return UnusedFieldError(absl::StrCat(field, ".columns"), needs);
  if (dataset.has_tags()) return UnusedFieldError(absl::StrCat(field, ".tags"), needs);
  if (dataset.has_alternate_turns()) {
    return UnusedFieldError(absl::StrCat(field, ".alternate_turns"), needs);
  }
  if (dataset.max_rows() != 0 && dataset.format() != v1::DATA_FORMAT_AUTO) {
    return UnusedFieldError(absl::StrCat(field, ".max_rows"), needs);
  }
  return absl::OkStatus();
}

absl::Status ResolveDataset(const std::string& field, const Roots& roots,
                            v1::DatasetSpec& dataset) {
  const auto at = [&](const char* name) { return absl::StrCat(field, ".", name); };
  PENSTOCK_RETURN_IF_ERROR(CheckEnum(at("format"), v1::DataFormat_descriptor(), dataset.format()));
  if (dataset.has_dataset_info()) {
    PENSTOCK_RETURN_IF_ERROR(ResolveDatasetInfo(field, roots, dataset));
  }
  if (dataset.format() == v1::DATA_FORMAT_UNSPECIFIED) dataset.set_format(v1::DATA_FORMAT_AUTO);
  if (dataset.paths().empty()) {
    return FieldError(at("paths"), "no path", "at least one file, or dataset_info");
  }
  PENSTOCK_RETURN_IF_ERROR(ResolvePaths(at("paths"), roots, *dataset.mutable_paths()));
  if (dataset.paths().empty()) {
    return FieldError(at("paths"), "a directory without files", "a directory with data files");
  }
  if (dataset.name().empty()) {
    dataset.set_name(std::filesystem::path(dataset.paths(0)).filename().string());
  }
  PENSTOCK_RETURN_IF_ERROR(CheckDisplayName(at("name"), dataset.name()));
  v1::TextDocuments documents = dataset.text_documents();
  PENSTOCK_RETURN_IF_ERROR(
      ResolveTextDocuments(at("text_documents"), dataset.format(), &documents));
  dataset.set_text_documents(documents);
  if (!dataset.has_weight()) dataset.set_weight(1);
  PENSTOCK_RETURN_IF_ERROR(CheckDouble(
      at("weight"), dataset.weight(), {.low = 0, .high = kMaxDatasetWeight, .low_allowed = false}));
  PENSTOCK_RETURN_IF_ERROR(CheckInteger(at("max_rows"), dataset.max_rows(), 0, kMaxRows));
  return CheckRowSettings(field, dataset);
}

absl::Status ResolveDatasets(const std::string& field, const Roots& roots, Datasets& datasets) {
  if (datasets.size() > kMaxDatasets) {
    return FieldError(field, absl::StrCat(datasets.size(), " datasets"),
                      absl::StrCat("at most ", kMaxDatasets));
  }
  for (int i = 0; i < datasets.size(); ++i) {
    PENSTOCK_RETURN_IF_ERROR(ResolveDataset(absl::StrCat(field, "[", i, "]"), roots, datasets[i]));
  }
  return absl::OkStatus();
}

// data.format, data.paths and data.text_documents, or data.datasets in their place.
absl::Status ResolveSources(const Roots& roots, v1::DataSpec& data) {
  PENSTOCK_RETURN_IF_ERROR(CheckEnum("data.format", v1::DataFormat_descriptor(), data.format()));
  if (!data.datasets().empty()) {
    if (data.format() != v1::DATA_FORMAT_UNSPECIFIED || !data.paths().empty() ||
        data.text_documents() != v1::TEXT_DOCUMENTS_UNSPECIFIED) {
      return FieldError("data", "both datasets and format, paths or text_documents",
                        "one of them; give each dataset its own");
    }
    return ResolveDatasets("data.datasets", roots, *data.mutable_datasets());
  }
  if (data.format() == v1::DATA_FORMAT_UNSPECIFIED) data.set_format(v1::DATA_FORMAT_AUTO);
  if (data.paths().empty()) {
    return FieldError("data.paths", "no path", "at least one file, or data.datasets");
  }
  PENSTOCK_RETURN_IF_ERROR(ResolvePaths("data.paths", roots, *data.mutable_paths()));
  if (data.paths().empty()) {
    return FieldError("data.paths", "a directory without files", "a directory with data files");
  }
  v1::TextDocuments documents = data.text_documents();
  PENSTOCK_RETURN_IF_ERROR(ResolveTextDocuments("data.text_documents", data.format(), &documents));
  data.set_text_documents(documents);
  return absl::OkStatus();
}

absl::Status ResolveEvaluationFiles(const Roots& roots, const v1::DataSpec& data,
                                    v1::EvaluationSpec& evaluation) {
  const bool paths = !evaluation.validation_paths().empty();
  const bool datasets = !evaluation.validation_datasets().empty();
  const bool fraction = evaluation.validation_fraction() > 0;
  const bool documents = evaluation.validation_documents() > 0;
  if (int{paths} + int{datasets} + int{fraction} + int{documents} > 1) {
    return FieldError("evaluation",
                      "more than one of validation_fraction, validation_documents, "
                      "validation_paths and validation_datasets",
                      "one of them; remove the others");
  }
  if (paths && !data.datasets().empty()) {
    return UnusedFieldError("evaluation.validation_paths",
                            "with data.datasets, of which none says how to read them; use "
                            "evaluation.validation_datasets");
  }
  PENSTOCK_RETURN_IF_ERROR(
      ResolvePaths("evaluation.validation_paths", roots, *evaluation.mutable_validation_paths()));
  return ResolveDatasets("evaluation.validation_datasets", roots,
                         *evaluation.mutable_validation_datasets());
}

// Calls visit(field, format) for every dataset, with a format that it may change.
template <typename Visit>
void ForEachFormat(v1::JobSpec& spec, Visit visit) {
  v1::DataSpec& data = *spec.mutable_data();
  const auto visit_one = [&](const std::string& field, auto& owner) {
    v1::DataFormat format = owner.format();
    visit(absl::StrCat(field, ".format"), format);
    owner.set_format(format);
  };
  if (data.datasets().empty()) visit_one("data", data);
  for (int i = 0; i < data.datasets().size(); ++i) {
    visit_one(absl::StrCat("data.datasets[", i, "]"), *data.mutable_datasets(i));
  }
  Datasets& validation = *spec.mutable_evaluation()->mutable_validation_datasets();
  for (int i = 0; i < validation.size(); ++i) {
    visit_one(absl::StrCat("evaluation.validation_datasets[", i, "]"), validation[i]);
  }
}

struct FormatsFound {
  bool examples = false;
  bool all_ids = true;
};

absl::Status ResolveType(v1::JobSpec& spec, FormatsFound& found) {
  PENSTOCK_RETURN_IF_ERROR(CheckEnum("type", v1::JobType_descriptor(), spec.type()));
  absl::Status status;
  ForEachFormat(spec, [&](const std::string& field, v1::DataFormat& format) {
    if (spec.type() == v1::JOB_TYPE_PRETRAIN) {
      if (format == v1::DATA_FORMAT_AUTO) format = v1::DATA_FORMAT_TEXT_ROWS;
      if (IsExamples(format) && status.ok()) {
        status = FieldError(field, "examples with answers in a job of type pretrain",
                            "text, text_rows or token_ids_jsonl; or set type to SFT");
      }
    }
    found.examples |= IsExamples(format);
    found.all_ids &= IsTokenIds(format);
  });
  PENSTOCK_RETURN_IF_ERROR(status);
  if (spec.type() == v1::JOB_TYPE_UNSPECIFIED) {
    spec.set_type(found.examples ? v1::JOB_TYPE_SFT : v1::JOB_TYPE_PRETRAIN);
  }
  return absl::OkStatus();
}

absl::Status ResolveTokenizer(const v1::ModelSource& model, bool all_ids, v1::DataSpec& data) {
  constexpr char kField[] = "data.tokenizer.kind";
  const v1::TokenizerKind kind = data.tokenizer().kind();
  PENSTOCK_RETURN_IF_ERROR(CheckEnum(kField, v1::TokenizerKind_descriptor(), kind));
  if (all_ids) {
    if (kind != v1::TOKENIZER_KIND_UNSPECIFIED) {
      return UnusedFieldError(kField, "on token ids, which are not tokenized again");
    }
    data.clear_tokenizer();
    return absl::OkStatus();
  }
  if (kind == v1::TOKENIZER_KIND_MODEL && !model.has_directory()) {
    return FieldError(kField, "MODEL on a model that does not come from a directory",
                      "BYTES, or a model.directory with a tokenizer");
  }
  if (kind == v1::TOKENIZER_KIND_UNSPECIFIED) {
    data.mutable_tokenizer()->set_kind(model.has_directory() ? v1::TOKENIZER_KIND_MODEL
                                                             : v1::TOKENIZER_KIND_BYTES);
  }
  return absl::OkStatus();
}

absl::Status ResolveChat(const Roots& roots, v1::ChatSpec& chat) {
  switch (chat.source_case()) {
    case v1::ChatSpec::kTemplatePath: {
      PENSTOCK_ASSIGN_OR_RETURN(
          std::string text,
          ReadFileAt("data.chat.template_path", chat.template_path(), roots, kMaxTemplateBytes));
      chat.set_template_text(std::move(text));
      break;
    }
    case v1::ChatSpec::kBuiltin:
      if (chat.builtin().empty()) {
        return FieldError("data.chat.builtin", "\"\"", "a name, such as chatml");
      }
      break;
    default:
      break;
  }
  if (static_cast<int64_t>(chat.template_text().size()) > kMaxTemplateBytes) {
    return FieldError("data.chat.template_text",
                      absl::StrCat(chat.template_text().size(), " bytes"),
                      absl::StrCat("at most ", kMaxTemplateBytes));
  }
  if (chat.arguments().size() > kMaxArgumentsBytes) {
    return FieldError("data.chat.arguments", absl::StrCat(chat.arguments().size(), " bytes"),
                      absl::StrCat("at most ", kMaxArgumentsBytes));
  }
  if (chat.now_unix_seconds() == 0) {
    const int64_t now = static_cast<int64_t>(std::time(nullptr));
    chat.set_now_unix_seconds(now - now % kDaySeconds);
  }
  return CheckInteger("data.chat.now_unix_seconds", chat.now_unix_seconds(), 0, int64_t{1} << 37);
}

absl::Status ResolveExampleRules(const Roots& roots, bool examples, v1::DataSpec& data) {
  PENSTOCK_RETURN_IF_ERROR(CheckEnum("data.too_long", v1::TooLong_descriptor(), data.too_long()));
  if (!examples) {
    const std::string because = "on text and token ids, which are no examples with answers";
    if (data.has_chat()) return UnusedFieldError("data.chat", because);
    if (data.train_on_prompt()) return UnusedFieldError("data.train_on_prompt", because);
    if (data.mask_history()) return UnusedFieldError("data.mask_history", because);
    if (data.too_long() != v1::TOO_LONG_UNSPECIFIED) {
      return UnusedFieldError("data.too_long", because);
    }
    return absl::OkStatus();
  }
  if (data.train_on_prompt() && data.mask_history()) {
    return FieldError("data", "both train_on_prompt and mask_history",
                      "one of them: the one learns everything, the other the last answer alone");
  }
  if (data.too_long() == v1::TOO_LONG_UNSPECIFIED) data.set_too_long(v1::TOO_LONG_DROP);
  return ResolveChat(roots, *data.mutable_chat());
}

absl::Status ResolveBadRows(v1::DataSpec& data) {
  PENSTOCK_RETURN_IF_ERROR(
      CheckEnum("data.on_bad_row", v1::BadRowPolicy_descriptor(), data.on_bad_row()));
  if (data.on_bad_row() == v1::BAD_ROW_POLICY_UNSPECIFIED) {
    data.set_on_bad_row(v1::BAD_ROW_POLICY_REFUSE);
  }
  if (data.on_bad_row() == v1::BAD_ROW_POLICY_REFUSE) {
    if (data.has_max_bad_rows()) {
      return UnusedFieldError("data.max_bad_rows", "unless data.on_bad_row is skip");
    }
    return absl::OkStatus();
  }
  if (!data.has_max_bad_rows()) data.set_max_bad_rows(100);
  if (data.max_bad_rows() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return FieldError("data.max_bad_rows", absl::StrCat(data.max_bad_rows()),
                      "an integer that fits 63 bits");
  }
  return absl::OkStatus();
}

Packing ToPacking(v1::Packing packing) {
  switch (packing) {
    case v1::PACKING_PADDED:
      return Packing::kPadded;
    case v1::PACKING_WRAPPED:
      return Packing::kWrapped;
    default:
      return Packing::kPacked;
  }
}

DataFormat ToDataFormat(v1::DataFormat format) {
  switch (format) {
    case v1::DATA_FORMAT_TEXT:
      return DataFormat::kText;
    case v1::DATA_FORMAT_TOKEN_IDS_JSONL:
      return DataFormat::kTokenIdsJsonl;
    default:
      return DataFormat::kRows;
  }
}

DatasetSource ToSource(const v1::DataSpec& data, const v1::DatasetSpec& dataset) {
  DatasetSource result = {.name = dataset.name(), .source = {}, .weight = dataset.weight()};
  DataSource& source = result.source;
  source.format = ToDataFormat(dataset.format());
  source.paths.assign(dataset.paths().begin(), dataset.paths().end());
  source.text_documents = dataset.text_documents() == v1::TEXT_DOCUMENTS_BLANK_LINE
                              ? TextDocuments::kBlankLine
                              : TextDocuments::kWholeFile;
  source.on_bad_row =
      data.on_bad_row() == v1::BAD_ROW_POLICY_SKIP ? BadRowPolicy::kSkip : BadRowPolicy::kRefuse;
  source.max_bad_rows = static_cast<int64_t>(data.max_bad_rows());
  if (ToRowFormat(dataset.format())) {
    absl::StatusOr<FormatSpec> format = MakeFormat("dataset", dataset);
    PENSTOCK_CHECK(format.ok(), std::string(format.status().message()));
    source.rows.format = *std::move(format);
  }
  if (dataset.max_rows() > 0) source.rows.max_rows = dataset.max_rows();
  return result;
}

// The dataset that data.format, paths and text_documents are.
v1::DatasetSpec SingleDataset(const v1::DataSpec& data, const Paths& paths) {
  v1::DatasetSpec dataset;
  dataset.set_format(data.format());
  *dataset.mutable_paths() = paths;
  dataset.set_text_documents(data.text_documents());
  dataset.set_weight(1);
  return dataset;
}

ChatTemplateChoice ToTemplateChoice(const v1::ChatSpec& chat) {
  using Kind = ChatTemplateChoice::Kind;
  switch (chat.source_case()) {
    case v1::ChatSpec::kBuiltin:
      return {.kind = Kind::kBuiltIn, .name = chat.builtin()};
    case v1::ChatSpec::kTemplateText:
      return {.kind = Kind::kText, .name = "data.chat.template_text", .text = chat.template_text()};
    default:
      return {.kind = Kind::kModel, .name = chat.model_template()};
  }
}

TooLong ToTooLong(v1::TooLong too_long) {
  switch (too_long) {
    case v1::TOO_LONG_TRUNCATE:
      return TooLong::kTruncate;
    case v1::TOO_LONG_SPLIT:
      return TooLong::kSplit;
    default:
      return TooLong::kDrop;
  }
}

}  // namespace

absl::Status ResolveData(const Roots& roots, v1::JobSpec& spec) {
  v1::DataSpec& data = *spec.mutable_data();
  PENSTOCK_RETURN_IF_ERROR(ResolveSources(roots, data));
  PENSTOCK_RETURN_IF_ERROR(ResolveEvaluationFiles(roots, data, *spec.mutable_evaluation()));
  FormatsFound found;
  PENSTOCK_RETURN_IF_ERROR(ResolveType(spec, found));
  PENSTOCK_RETURN_IF_ERROR(ResolveTokenizer(spec.model(), found.all_ids, data));
  PENSTOCK_RETURN_IF_ERROR(ResolveExampleRules(roots, found.examples, data));
  PENSTOCK_RETURN_IF_ERROR(CheckEnum("data.packing", v1::Packing_descriptor(), data.packing()));
  if (data.packing() == v1::PACKING_UNSPECIFIED) data.set_packing(v1::PACKING_PACKED);
  return ResolveBadRows(data);
}

DataConfig ToDataConfig(const v1::DataSpec& data) {
  DataConfig config;
  if (data.datasets().empty()) {
    config.datasets.push_back(ToSource(data, SingleDataset(data, data.paths())));
  }
  for (const v1::DatasetSpec& dataset : data.datasets()) {
    config.datasets.push_back(ToSource(data, dataset));
  }
  config.packing = ToPacking(data.packing());
  config.tokenizer = data.tokenizer().kind() == v1::TOKENIZER_KIND_MODEL ? TokenizerChoice::kModel
                                                                         : TokenizerChoice::kBytes;
  config.chat_template = ToTemplateChoice(data.chat());
  config.chat_arguments_json = data.chat().arguments();
  config.chat_now_unix_seconds = data.chat().now_unix_seconds();
  config.train_on_prompt = data.train_on_prompt();
  config.mask_history = data.mask_history();
  config.too_long = ToTooLong(data.too_long());
  return config;
}

std::vector<DatasetSource> ToEvaluationDatasets(const v1::JobSpec& spec) {
  const v1::EvaluationSpec& evaluation = spec.evaluation();
  std::vector<DatasetSource> datasets;
  if (!evaluation.validation_paths().empty()) {
    datasets.push_back(
        ToSource(spec.data(), SingleDataset(spec.data(), evaluation.validation_paths())));
  }
  for (const v1::DatasetSpec& dataset : evaluation.validation_datasets()) {
    datasets.push_back(ToSource(spec.data(), dataset));
  }
  return datasets;
}

}  // namespace penstock::server
