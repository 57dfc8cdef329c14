#include "engine/train/job_encoding.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "engine/template/builtin_templates.h"
#include "engine/template/json_value.h"
#include "engine/template/model_template.h"
#include "engine/train/chat_warnings.h"
#include "engine/train/tokenizer_files.h"

namespace penstock {
namespace {

constexpr int64_t kMaxArgumentsBytes = 64 * 1024;
// Of all that a template makes of a row: every thread may have so much at a time.
constexpr int64_t kMaxRenderBytes = int64_t{128} << 20;

std::vector<const DataSource*> SourcesOf(const TrainConfig& config) {
  std::vector<const DataSource*> sources;
  for (const auto* datasets : {&config.data.datasets, &config.evaluation.datasets}) {
    for (const DatasetSource& dataset : *datasets) sources.push_back(&dataset.source);
  }
  return sources;
}

bool HasSource(const TrainConfig& config, DataFormat format) {
  const std::vector<const DataSource*> sources = SourcesOf(config);
  return std::any_of(sources.begin(), sources.end(),
                     [&](const DataSource* source) { return source->format == format; });
}

// Whether some rows are conversations for certain: then a job without a template cannot run.
bool HasConversations(const TrainConfig& config) {
  const std::vector<const DataSource*> sources = SourcesOf(config);
  return std::any_of(sources.begin(), sources.end(), [](const DataSource* source) {
    if (source->format != DataFormat::kRows || !source->rows.format) return false;
    const RowFormat format = source->rows.format->format;
    return format != RowFormat::kText && format != RowFormat::kPromptCompletion;
  });
}

const std::string* FindSideFile(const ModelInput& model, std::string_view name) {
  const std::vector<SideFile>& files = model.source.side_files;
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const SideFile& file) { return file.name == name; });
  return found == files.end() ? nullptr : &found->content;
}

absl::StatusOr<ChatTemplate> FindTemplate(const ChatTemplateChoice& choice,
                                          const ModelInput& model) {
  switch (choice.kind) {
    case ChatTemplateChoice::Kind::kBuiltIn:
      return BuiltInTemplate(choice.name);
    case ChatTemplateChoice::Kind::kText:
      return ChatTemplate::Parse(choice.text, choice.name);
    case ChatTemplateChoice::Kind::kModel:
      break;
  }
  ModelTemplateFiles files;
  if (const std::string* text = FindSideFile(model, "chat_template.jinja")) {
    files.chat_template_jinja = *text;
  }
  if (const std::string* text = FindSideFile(model, "tokenizer_config.json")) {
    files.tokenizer_config_json = *text;
  }
  return FindModelTemplate(files, choice.name);
}

// What templates are told by who renders them; an argument of that name would be overwritten.
constexpr std::string_view kReservedArguments[] = {
    "messages",  "tools",     "documents", "add_generation_prompt",
    "bos_token", "eos_token", "pad_token", "unk_token"};

absl::Status ReadArguments(const std::string& json, ChatOptions& options) {
  if (json.empty()) return absl::OkStatus();
  constexpr char kField[] = "data.chat.arguments";
  PENSTOCK_ASSIGN_OR_RETURN(
      const jinja::Value value,
      jinja::ParseJsonValue(json, kField, {.max_bytes = kMaxArgumentsBytes}, reason::kSpecInvalid));
  const auto refuse = [&](const std::string& message) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kSpecInvalid,
                 absl::StrCat(kField, ": ", message), {{"field", kField}});
  };
  if (!value.is_dict()) {
    return refuse("expected a JSON object, such as {\"enable_thinking\": false}");
  }
  for (const auto& [key, argument] : value.dict()) {
    const std::string& name = key.string();
    if (std::find(std::begin(kReservedArguments), std::end(kReservedArguments), name) !=
        std::end(kReservedArguments)) {
      return refuse(absl::StrCat("\"", name, "\" is set for every row; remove it"));
    }
    options.arguments.emplace_back(name, argument);
  }
  return absl::OkStatus();
}

std::string ContentOf(const std::optional<NamedToken>& token) {
  return token ? token->content : "";
}

absl::Status CheckVocabulary(const ModelTokenizer& tokenizer, const ModelInput& model) {
  const int64_t ids = tokenizer.vocab_size(), rows = model.spec.vocab_size;
  if (ids <= rows) return absl::OkStatus();
  const std::string last = tokenizer.IdToToken(static_cast<int32_t>(ids - 1)).value_or("");
  return Error(absl::StatusCode::kInvalidArgument, reason::kModelInvalid,
               absl::StrCat("the tokenizer of ", model.source.model_path, " has ids up to ",
                            ids - 1, " (\"", absl::CHexEscape(last.substr(0, 64)),
                            "\"), but the model's embedding has ", rows,
                            " rows (vocab_size in config.json): the tokenizer is of another "
                            "model, or tokens were added without giving the model rows for "
                            "them; copy the tokenizer files of this model there"),
               {{"tokenizer_ids", absl::StrCat(ids)}, {"embedding_rows", absl::StrCat(rows)}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobEncoding>> JobEncoding::Create(const TrainConfig& config,
                                                                 const ModelInput& model) {
  std::unique_ptr<JobEncoding> encoding(new JobEncoding);
  PENSTOCK_RETURN_IF_ERROR(encoding->ChooseTokenizer(config, model));
  if (HasSource(config, DataFormat::kRows)) {
    PENSTOCK_RETURN_IF_ERROR(encoding->ChooseTemplate(config, model));
  }
  const Tokenizer* tokenizer = &encoding->byte_tokenizer_;
  if (encoding->model_tokenizer_ != nullptr) tokenizer = encoding->model_tokenizer_.get();
  PENSTOCK_ASSIGN_OR_RETURN(
      ExampleEncoder encoder,
      ExampleEncoder::Create({.tokenizer = tokenizer,
                              .chat = encoding->chat_ ? &*encoding->chat_ : nullptr,
                              .rules = {.train_on_prompt = config.data.train_on_prompt,
                                        .mask_history = config.data.mask_history,
                                        .max_tokens = config.batch.sequence_length,
                                        .too_long = config.data.too_long}}));
  encoding->encoder_.emplace(std::move(encoder));
  return encoding;
}

absl::Status JobEncoding::ChooseTokenizer(const TrainConfig& config, const ModelInput& model) {
  const bool tokenizes =
      HasSource(config, DataFormat::kText) || HasSource(config, DataFormat::kRows);
  if (!tokenizes) {
    // Only to show ids as text, so it may be missing.
    if (model.directory == nullptr) return absl::OkStatus();
    auto tokenizer = TokenizerOf(model.source.side_files, model.source.model_path);
    if (tokenizer.ok()) model_tokenizer_ = *std::move(tokenizer);
    return absl::OkStatus();
  }
  if (config.data.tokenizer == TokenizerChoice::kBytes) {
    decodes_bytes_ = true;
    notes_.push_back("tokenizer: bytes");
    return absl::OkStatus();
  }
  if (model.directory == nullptr) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kSpecInvalid,
                 "data.tokenizer.kind: found MODEL, expected BYTES for a model that does not come "
                 "from a directory: it has no tokenizer",
                 {{"field", "data.tokenizer.kind"}});
  }
  if (FindSideFile(model, "tokenizer.json") == nullptr &&
      FindSideFile(model, "tokenizer.model") == nullptr) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kModelInvalid,
                 absl::StrCat(model.source.model_path,
                              " has no tokenizer.json; copy the model's tokenizer files there, or "
                              "set data.tokenizer.kind to BYTES if it was trained on bytes"),
                 {{"field", "data.tokenizer.kind"}});
  }
  PENSTOCK_ASSIGN_OR_RETURN(model_tokenizer_,
                            TokenizerOf(model.source.side_files, model.source.model_path));
  PENSTOCK_RETURN_IF_ERROR(CheckVocabulary(*model_tokenizer_, model));
  const std::optional<NamedToken>& eos = model_tokenizer_->special_tokens().eos;
  notes_.push_back(absl::StrCat("tokenizer: the model's, ids up to ",
                                model_tokenizer_->vocab_size() - 1, ", documents end with ",
                                eos ? eos->content : "nothing: it names no EOS"));
  return absl::OkStatus();
}

absl::Status JobEncoding::ChooseTemplate(const TrainConfig& config, const ModelInput& model) {
  absl::StatusOr<ChatTemplate> found = FindTemplate(config.data.chat_template, model);
  if (absl::IsNotFound(found.status()) && !HasConversations(config) &&
      config.data.chat_template.kind == ChatTemplateChoice::Kind::kModel &&
      config.data.chat_template.name.empty()) {
    return absl::OkStatus();  // a row that needs one says so
  }
  if (!found.ok()) return Annotate(found.status(), "data.chat");
  ChatOptions options = {
      .now_unix_seconds = config.data.chat_now_unix_seconds,
      .limits = {.max_output_bytes = kMaxExampleBytes, .max_total_bytes = kMaxRenderBytes}};
  if (model_tokenizer_ != nullptr) {
    const SpecialTokenNames& names = model_tokenizer_->special_tokens();
    options.bos_token = ContentOf(names.bos);
    options.eos_token = ContentOf(names.eos);
    options.pad_token = ContentOf(names.pad);
    options.unk_token = ContentOf(names.unk);
  }
  PENSTOCK_RETURN_IF_ERROR(ReadArguments(config.data.chat_arguments_json, options));
  notes_.push_back(absl::StrCat("chat template: ", found->name(),
                                found->has_generation()
                                    ? ", which marks what the assistant says"
                                    : "; what the assistant says is found by rendering prefixes"));
  chat_.emplace(ChatSetup{.chat_template = *std::move(found),
                          .options = std::move(options),
                          .arguments_json = config.data.chat_arguments_json});
  if (model_tokenizer_ != nullptr) {
    const std::string* generation = FindSideFile(model, "generation_config.json");
    for (const std::string& warning :
         ChatWarnings(*chat_, *model_tokenizer_, generation == nullptr ? "" : *generation)) {
      notes_.push_back(absl::StrCat("warning: ", warning));
    }
  }
  return absl::OkStatus();
}

std::string JobEncoding::Decode(std::span<const int32_t> ids) const {
  if (model_tokenizer_ != nullptr) {
    return model_tokenizer_->Decode(ids, ModelTokenizer::SpecialIds::kKeep);
  }
  if (!decodes_bytes_) return absl::StrCat(absl::StrJoin(ids, " "), " ");
  std::string bytes;
  for (const int32_t id : ids) {
    if (id < ByteTokenizer::kEndOfDocument) {
      bytes.push_back(static_cast<char>(id));
    } else {
      absl::StrAppend(&bytes, "<", id, ">");
    }
  }
  return ReplaceInvalidUtf8(bytes);
}

absl::StatusOr<JobData> OpenJobData(const TrainConfig& config, const ModelInput& model,
                                    const JobEncoding& encoding, OpenDataOptions options) {
  return OpenJobData({.train = config.data.datasets,
                      .evaluation = config.evaluation.datasets,
                      .held_out = {.fraction = config.evaluation.validation_fraction,
                                   .documents = config.evaluation.validation_documents},
                      .seed = config.seed,
                      .embedding_rows = model.spec.vocab_size,
                      .encoder = &encoding.encoder(),
                      .threads = options.threads,
                      .max_documents = options.max_documents,
                      .cache_directory = config.token_cache_directory,
                      .progress = std::move(options.progress)});
}

}  // namespace penstock
