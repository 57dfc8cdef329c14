#include "engine/data/dataset_info.h"

#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/model/strict_json.h"

namespace penstock {
namespace {

using nlohmann::json;

class EntryReader {
 public:
  EntryReader(const json& entry, std::string where) : entry_(entry), where_(std::move(where)) {}

  absl::StatusOr<DatasetInfo> Read() {
    PENSTOCK_RETURN_IF_ERROR(RefuseWhatIsNoFile());
    PENSTOCK_RETURN_IF_ERROR(RefuseWhatHasNoUse());
    PENSTOCK_RETURN_IF_ERROR(ReadFormat());
    PENSTOCK_RETURN_IF_ERROR(ReadColumns());
    PENSTOCK_RETURN_IF_ERROR(ReadTags());
    PENSTOCK_ASSIGN_OR_RETURN(info_.file_name, Text(entry_, "file_name", ""));
    if (info_.file_name.empty()) {
      return Refuse("file_name", "found nothing, expected the path of a local file");
    }
    return info_;
  }

 private:
  absl::Status Refuse(std::string_view key, std::string_view message) const {
    return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid,
                 absl::StrCat(where_, ".", std::string(key), ": ", std::string(message)),
                 {{"field", std::string(key)}});
  }

  // Null and an absent key are one: LLaMA-Factory reads with dict.get.
  static const json* Find(const json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }

  absl::StatusOr<std::string> Text(const json& object, const char* key,
                                   const std::string& fallback) const {
    const json* value = Find(object, key);
    if (value == nullptr) return fallback;
    if (!value->is_string()) {
      return Refuse(key, absl::StrCat("found a ", value->type_name(), ", expected a string"));
    }
    return value->get<std::string>();
  }

  absl::Status RefuseWhatIsNoFile() const {
    for (const char* key :
         {"hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name"}) {
      if (!entry_.contains(key)) continue;
      return Refuse(key,
                    "only local files are read; download the data, then give the entry a "
                    "file_name and remove this key");
    }
    return absl::OkStatus();
  }

  absl::Status RefuseWhatHasNoUse() {
    if (const json* ranking = Find(entry_, "ranking"); ranking && *ranking != false) {
      return Refuse("ranking", "preference data, which pretrain and sft jobs do not use");
    }
    if (const json* subset = Find(entry_, "subset"); subset) {
      return Refuse("subset", "has no meaning for local files; remove it");
    }
    if (const json* folder = Find(entry_, "folder"); folder) {
      return Refuse("folder", "has no meaning for local files; put it into file_name");
    }
    if (const json* split = Find(entry_, "split"); split && *split != "train") {
      return Refuse("split",
                    "local files are the split \"train\"; to take a part of them use num_samples "
                    "or the job's validation settings");
    }
    const json* samples = Find(entry_, "num_samples");
    if (samples == nullptr) return absl::OkStatus();
    if (!samples->is_number_integer() || *samples < 1 || *samples > (int64_t{1} << 40)) {
      return Refuse("num_samples", "expected a whole number of at least 1");
    }
    info_.max_samples = samples->get<int64_t>();
    return absl::OkStatus();
  }

  absl::Status ReadFormat() {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string formatting, Text(entry_, "formatting", "alpaca"));
    if (formatting == "alpaca") {
      info_.format.format = RowFormat::kAlpaca;
    } else if (formatting == "sharegpt" || formatting == "openai") {
      info_.format.format = formatting == "openai" ? RowFormat::kMessages : RowFormat::kShareGpt;
      info_.format.turns = Turns::kAlternate;
    } else {
      return Refuse("formatting", absl::StrCat("found \"", formatting.substr(0, 60),
                                               "\", expected alpaca, sharegpt or openai"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadColumns() {
    static const json kNone = json::object();
    const bool given = entry_.contains("columns");
    const json& names = given ? entry_["columns"] : kNone;
    if (!names.is_object()) return Refuse("columns", "expected an object of column names");
    for (const char* key : {"images", "videos", "audios", "kto_tag"}) {
      if (Find(names, key) == nullptr) continue;
      return Refuse(absl::StrCat("columns.", key),
                    "pretrain and sft jobs train on text alone; remove it, or use another dataset");
    }
    const bool alpaca = info_.format.format == RowFormat::kAlpaca;
    using Need = Column::Need;
    Columns& columns = info_.format.columns;
    struct Wanted {
      const char* key;
      const char* standard;  // the name without "columns"; "" for none
      Column* column;
      Need need;  // with the standard name
    };
    const auto of_alpaca = [&](Need need) { return alpaca ? need : Need::kUnused; };
    const std::array<Wanted, 7> wanted = {{
        {"prompt", "instruction", &columns.prompt, of_alpaca(Need::kRequired)},
        {"query", "input", &columns.query, of_alpaca(Need::kOptional)},
        {"response", "output", &columns.response, of_alpaca(Need::kRequired)},
        {"history", "", &columns.history, of_alpaca(Need::kNamed)},
        {"messages", "conversations", &columns.messages, alpaca ? Need::kUnused : Need::kRequired},
        {"system", "", &columns.system, Need::kNamed},
        {"tools", "", &columns.tools, Need::kNamed},
    }};
    for (const Wanted& want : wanted) {
      if (want.need == Need::kUnused) continue;
      PENSTOCK_ASSIGN_OR_RETURN(const std::string name,
                                Text(names, want.key, given ? "" : want.standard));
      if (name.empty()) continue;
      const bool named = given && want.need == Need::kOptional;
      *want.column = {name, named ? Need::kNamed : want.need};
    }
    return CheckColumns(alpaca);
  }

  absl::Status CheckColumns(bool alpaca) const {
    const Columns& columns = info_.format.columns;
    const char* missing = nullptr;
    if (alpaca && !columns.prompt.used() && !columns.query.used()) missing = "prompt";
    if (alpaca && !columns.response.used()) missing = "response";
    if (!alpaca && !columns.messages.used()) missing = "messages";
    if (missing == nullptr) return absl::OkStatus();
    return Refuse(absl::StrCat("columns.", missing),
                  "is not named: with \"columns\" in an entry, what it does not name is unused; "
                  "name it");
  }

  absl::Status ReadTags() {
    static const json kNone = json::object();
    if (info_.format.format == RowFormat::kAlpaca) return absl::OkStatus();
    const bool given = entry_.contains("tags");
    const json& names = given ? entry_["tags"] : kNone;
    if (!names.is_object()) return Refuse("tags", "expected an object of tags");
    Tags& tags = info_.format.tags;
    const std::array<std::pair<const char*, std::pair<const char*, std::string*>>, 7> wanted = {{
        {"role_tag", {"from", &tags.role}},
        {"content_tag", {"value", &tags.content}},
        {"user_tag", {"human", &tags.user}},
        {"assistant_tag", {"gpt", &tags.assistant}},
        {"observation_tag", {"observation", &tags.observation}},
        {"function_tag", {"function_call", &tags.function}},
        {"system_tag", {"system", &tags.system}},
    }};
    for (const auto& [key, place] : wanted) {
      PENSTOCK_ASSIGN_OR_RETURN(*place.second, Text(names, key, given ? "" : place.first));
    }
    for (const auto& [key, place] : wanted) {
      const bool needed = place.second == &tags.role || place.second == &tags.content ||
                          place.second == &tags.user || place.second == &tags.assistant;
      if (!needed || !place.second->empty()) continue;
      return Refuse(absl::StrCat("tags.", key),
                    "is not named: with \"tags\" in an entry, what it does not name does not "
                    "occur; name it");
    }
    return absl::OkStatus();
  }

  const json& entry_;
  const std::string where_;
  DatasetInfo info_;
};

}  // namespace

absl::StatusOr<DatasetInfo> ParseDatasetInfo(std::string_view text, std::string_view what,
                                             std::string_view name) {
  const std::string file(what), entry_name(name);
  PENSTOCK_ASSIGN_OR_RETURN(
      const json root, ParseStrictJson({text.data(), text.size()}, file,
                                       {.max_bytes = kMaxDatasetInfoBytes}, reason::kDataInvalid));
  const auto refuse = [&](const std::string& message) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid,
                 absl::StrCat(file, ": ", message), {{"path", file}});
  };
  if (!root.is_object()) return refuse("expected an object with an entry for each dataset");
  const auto entry = root.find(entry_name);
  if (entry == root.end()) {
    std::vector<std::string> names;
    for (const auto& [key, value] : root.items()) {
      if (names.size() < 20) names.push_back(key.substr(0, 60));
    }
    return refuse(absl::StrCat("has no dataset \"", entry_name, "\"; it has ", root.size(), ": ",
                               absl::StrJoin(names, ", "), root.size() > 20 ? ", ..." : ""));
  }
  if (!entry->is_object()) return refuse(absl::StrCat(entry_name, " is not an object"));
  return EntryReader(*entry, absl::StrCat(file, ": ", entry_name)).Read();
}

}  // namespace penstock
