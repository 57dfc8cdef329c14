#include "engine/tokenizer/post_processor.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "engine/tokenizer/components.h"
#include "engine/tokenizer/unicode.h"
#include "engine/tokenizer/vocabulary.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr size_t kMaxAdded = 1024;
constexpr char32_t kSpelledSpace = 0x120;  // Ġ

bool IsSpace(char32_t c) { return c == kSpelledSpace || IsWhitespace(c); }

// Moves the ends of a span inwards by as many characters of the text.
void Trim(std::string_view text, TokenMargins margins, TextSpan& span) {
  const char* const begin = text.data() + span.begin;
  const char* const end = text.data() + span.end;
  const char* p = begin;
  for (uint32_t i = 0; i < margins.leading && p < end; ++i) NextUtf8(p);
  const char* q = end;
  uint32_t left = margins.trailing;
  while (left > 0 && q > text.data()) {
    PreviousUtf8(q);
    --left;
  }
  if (left > 0) q = end;  // more than there is before the token's end: left as it is
  span.begin = p - text.data();
  span.end = std::max(q, p) - text.data();
}

absl::Status AppendId(const ConfigFields& fields, absl::string_view key, const json& id,
                      std::vector<int32_t>& ids) {
  if (!id.is_number_unsigned() || id.get<uint64_t>() > uint64_t{kMaxTokenId}) {
    return fields.Invalid(key, absl::StrCat("names ", ShortJson(id),
                                            " as a token id; a whole "
                                            "number from 0 to ",
                                            kMaxTokenId, " is needed"));
  }
  if (ids.size() == kMaxAdded) {
    return fields.Invalid(key, absl::StrCat("adds more than ", kMaxAdded, " tokens"));
  }
  ids.push_back(id.get<int32_t>());
  return absl::OkStatus();
}

}  // namespace

TokenMargins MarginsOf(std::string_view token) {
  TokenMargins margins;
  const char* const end = token.data() + token.size();
  for (const char* p = token.data(); p < end && IsSpace(NextUtf8(p));) ++margins.leading;
  for (const char* p = end; p > token.data() && IsSpace(PreviousUtf8(p));) ++margins.trailing;
  return margins;
}

absl::StatusOr<PostProcessor> PostProcessor::Read(const ConfigFields& file,
                                                  absl::string_view name) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Component> components,
                            ReadComponents(file, name, "processors"));
  PostProcessor processor;
  for (const Component& component : components) {
    const ConfigFields& fields = component.fields;
    const std::string& type = component.type;
    if (type == "ByteLevel" || type == "RobertaProcessing") {
      PENSTOCK_ASSIGN_OR_RETURN(const bool trims, fields.Bool("trim_offsets", true));
      PENSTOCK_ASSIGN_OR_RETURN(const bool prefix, fields.Bool("add_prefix_space", true));
      if (trims) processor.steps_.emplace_back(TrimSpans{prefix});
    } else if (type != "TemplateProcessing" && type != "BertProcessing") {
      return UnknownComponent(component,
                              "ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing "
                              "and Sequence");
    }
    if (type == "TemplateProcessing") {
      PENSTOCK_ASSIGN_OR_RETURN(Surround surround, ReadTemplate(fields));
      processor.steps_.emplace_back(std::move(surround));
    } else if (type != "ByteLevel") {
      PENSTOCK_ASSIGN_OR_RETURN(Surround surround, ReadClassification(fields));
      processor.steps_.emplace_back(std::move(surround));
    }
  }
  return processor;
}

// {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens":
// {"<s>": {"ids": [1]}}}
absl::StatusOr<PostProcessor::Surround> PostProcessor::ReadTemplate(const ConfigFields& fields) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<ConfigFields> tokens,
                            fields.OptionalObject("special_tokens"));
  const json* single = fields.Find("single");
  if (single == nullptr || !single->is_array()) return fields.Wanted("single", "a list");
  Surround surround;
  int64_t texts = 0;
  for (size_t i = 0; i < single->size(); ++i) {
    const std::string where = absl::StrCat(fields.where(), "single[", i, "].");
    const json& piece = (*single)[i];
    const auto unknown = [&] {
      return fields.Invalid("single", absl::StrCat("has ", ShortJson(piece), " as entry ", i,
                                                   "; an object with one key, \"Sequence\" or "
                                                   "\"SpecialToken\", is needed"));
    };
    if (!piece.is_object() || piece.size() != 1) return unknown();
    const ConfigFields entry(piece, where);
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<ConfigFields> text,
                              entry.OptionalObject("Sequence"));
    if (text) {
      PENSTOCK_ASSIGN_OR_RETURN(const std::string id, text->String("id"));
      if (id != "A") return text->Wanted("id", "\"A\", the only text,");
      ++texts;
      continue;
    }
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<ConfigFields> special,
                              entry.OptionalObject("SpecialToken"));
    if (!special) return unknown();
    PENSTOCK_ASSIGN_OR_RETURN(const std::string id, special->String("id"));
    const json* token = tokens ? tokens->Find(id) : nullptr;
    if (token == nullptr || !token->is_object() || !token->contains("ids") ||
        !(*token)["ids"].is_array()) {
      return special->Wanted("id", "a key of special_tokens that has ids");
    }
    std::vector<int32_t>& ids = texts == 0 ? surround.before : surround.after;
    for (const json& number : (*token)["ids"]) {
      PENSTOCK_RETURN_IF_ERROR(AppendId(fields, "special_tokens", number, ids));
    }
  }
  if (texts != 1) {
    return fields.Invalid("single", absl::StrCat("has the text ", texts, " times; once is needed"));
  }
  return surround;
}

// {"cls": ["<s>", 0], "sep": ["</s>", 2]}
absl::StatusOr<PostProcessor::Surround> PostProcessor::ReadClassification(
    const ConfigFields& fields) {
  Surround surround;
  for (const char* key : {"cls", "sep"}) {
    const json* pair = fields.Find(key);
    if (pair == nullptr || !pair->is_array() || pair->size() != 2) {
      return fields.Wanted(key, "a list of a token and its id");
    }
    std::vector<int32_t>& ids = key[0] == 'c' ? surround.before : surround.after;
    PENSTOCK_RETURN_IF_ERROR(AppendId(fields, key, (*pair)[1], ids));
  }
  return surround;
}

bool PostProcessor::trims() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const auto& step) { return std::holds_alternative<TrimSpans>(step); });
}

int32_t PostProcessor::max_id() const {
  int32_t largest = -1;
  for (const auto& step : steps_) {
    const auto* surround = std::get_if<Surround>(&step);
    if (surround == nullptr) continue;
    for (const int32_t id : surround->before) largest = std::max(largest, id);
    for (const int32_t id : surround->after) largest = std::max(largest, id);
  }
  return largest;
}

void PostProcessor::Apply(PostProcess mode, std::string_view text,
                          std::vector<TokenMargins>& margins, size_t begin,
                          Encoding& encoding) const {
  const bool wants_spans = encoding.spans.size() == encoding.ids.size();
  const auto surround = [begin](auto& list, const auto& before, const auto& after) {
    list.insert(list.begin() + static_cast<int64_t>(begin), before.begin(), before.end());
    list.insert(list.end(), after.begin(), after.end());
  };
  for (const auto& step : steps_) {
    if (const auto* added = std::get_if<Surround>(&step)) {
      if (mode == PostProcess::kSkip) continue;
      surround(encoding.ids, added->before, added->after);
      if (!wants_spans) continue;
      surround(encoding.spans, std::vector<TextSpan>(added->before.size()),
               std::vector<TextSpan>(added->after.size()));
      if (!trims()) continue;
      margins.insert(margins.begin(), added->before.size(), TokenMargins{});
      margins.insert(margins.end(), added->after.size(), TokenMargins{});
      continue;
    }
    const bool keeps_one = std::get<TrimSpans>(step).first_keeps_one_space;
    for (size_t i = begin; wants_spans && i < encoding.spans.size(); ++i) {
      TokenMargins margin = margins[i - begin];
      TextSpan& span = encoding.spans[i];
      const bool first = i == begin || span.begin == 0;
      if (first && keeps_one && margin.leading == 1) margin.leading = 0;
      if (margin.leading > 0 || margin.trailing > 0) Trim(text, margin, span);
    }
  }
}

}  // namespace penstock
