#include "engine/train/chat_warnings.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/data/chat_values.h"
#include "engine/template/chat_mask.h"
#include "nlohmann/json.hpp"

namespace penstock {
namespace {

struct Probe {
  std::string text;
  Encoding encoding;
  std::vector<uint8_t> trained;
};

std::optional<Probe> RenderProbe(const ChatSetup& chat, const ModelTokenizer& tokenizer) {
  Chat example;
  for (const auto& [role, content] : {std::pair{"user", "Why?"}, {"assistant", "Because."}}) {
    nlohmann::ordered_json fields;
    fields["role"] = role;
    fields["content"] = content;
    example.messages.push_back({.fields = std::move(fields)});
  }
  Conversation conversation;
  if (ToConversation(example, conversation)) return std::nullopt;
  auto text = RenderForTraining(chat.chat_template, conversation, chat.options);
  Probe probe;
  if (!text.ok() || !tokenizer.EncodeWithSpans(text->text, {}, probe.encoding).ok()) {
    return std::nullopt;
  }
  probe.trained = MaskTokens(text->spans, probe.encoding.spans).trained;
  probe.text = std::move(text->text);
  return probe;
}

std::string NameOf(const ModelTokenizer& tokenizer, int32_t id) {
  return absl::StrCat(tokenizer.IdToToken(id).value_or("?"), " (id ", id, ")");
}

void CheckBeginning(const Probe& probe, const ModelTokenizer& tokenizer, const std::string& name,
                    std::vector<std::string>& warnings) {
  const auto frame = MakeDocumentFrame(tokenizer);
  const std::optional<NamedToken>& bos = tokenizer.special_tokens().bos;
  const bool added = frame.ok() && !frame->before.empty();
  if (!added && !bos) return;
  const int32_t id = added ? frame->before.front() : bos->id;
  const std::vector<int32_t>& ids = probe.encoding.ids;
  const auto times =
      std::find_if(ids.begin(), ids.end(), [&](int32_t i) { return i != id; }) - ids.begin();
  if (times == 0 && added) {
    warnings.push_back(absl::StrCat(
        "the tokenizer puts ", NameOf(tokenizer, id), " before a text, but ", name,
        " does not begin with it; write {{ bos_token }} at its beginning if the model expects it"));
  } else if (times > 1) {
    warnings.push_back(absl::StrCat(name, " begins with ", NameOf(tokenizer, id), " ", times,
                                    " times; leave it out but once"));
  }
}

// The last token that is learned and is more than white space.
std::optional<int32_t> EndOfTurn(const Probe& probe) {
  for (size_t i = probe.trained.size(); i-- > 0;) {
    const TextSpan& span = probe.encoding.spans[i];
    const absl::string_view text(probe.text.data() + span.begin,
                                 static_cast<size_t>(span.end - span.begin));
    if (probe.trained[i] != 0 && !absl::StripAsciiWhitespace(text).empty()) {
      return probe.encoding.ids[i];
    }
  }
  return std::nullopt;
}

// What generation stops at, by generation_config.json or else by the tokenizer's EOS.
std::vector<int32_t> StopIds(const ModelTokenizer& tokenizer, std::string_view config,
                             std::string& origin) {
  const auto root = nlohmann::json::parse(config, nullptr, /*allow_exceptions=*/false);
  if (root.is_object() && root.contains("eos_token_id")) {
    const nlohmann::json& eos = root.at("eos_token_id");
    const nlohmann::json list = eos.is_array() ? eos : nlohmann::json::array({eos});
    std::vector<int32_t> ids;
    for (const nlohmann::json& id : list) {
      if (id.is_number_integer()) ids.push_back(id.get<int32_t>());
    }
    origin = "eos_token_id of generation_config.json";
    if (!ids.empty()) return ids;
  }
  origin = "eos_token of tokenizer_config.json";
  const std::optional<NamedToken>& eos = tokenizer.special_tokens().eos;
  return eos ? std::vector<int32_t>{eos->id} : std::vector<int32_t>{};
}

void CheckEnd(const Probe& probe, const ModelTokenizer& tokenizer, const std::string& name,
              std::string_view generation_config, std::vector<std::string>& warnings) {
  const std::optional<int32_t> end = EndOfTurn(probe);
  if (!end) return;
  std::string origin;
  const std::vector<int32_t> stops = StopIds(tokenizer, generation_config, origin);
  if (std::find(stops.begin(), stops.end(), *end) != stops.end()) return;
  const auto added = tokenizer.added_tokens();
  if (std::none_of(added.begin(), added.end(),
                   [&](const AddedToken& token) { return token.id == *end; })) {
    warnings.push_back(absl::StrCat(
        "with ", name, " what the assistant says ends with ", NameOf(tokenizer, *end),
        ", no token of its own: the model will not learn to stop; take a template that ends turns "
        "with a special token of this tokenizer"));
    return;
  }
  if (stops.empty()) return;
  warnings.push_back(absl::StrCat("with ", name, " what the assistant says ends with ",
                                  NameOf(tokenizer, *end), ", but generation stops at ",
                                  absl::StrJoin(stops, ", "), " (", origin,
                                  "); add the id there, or the trained model will talk on"));
}

}  // namespace

std::vector<std::string> ChatWarnings(const ChatSetup& chat, const ModelTokenizer& tokenizer,
                                      std::string_view generation_config_json) {
  std::vector<std::string> warnings;
  const std::optional<Probe> probe = RenderProbe(chat, tokenizer);
  if (!probe) return warnings;
  const std::string& name = chat.chat_template.name();
  CheckBeginning(*probe, tokenizer, name, warnings);
  CheckEnd(*probe, tokenizer, name, generation_config_json, warnings);
  return warnings;
}

}  // namespace penstock
