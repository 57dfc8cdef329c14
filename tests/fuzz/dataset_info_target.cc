// Damaged dataset_info.json: what is taken of an entry can be used as it is.
#include "absl/strings/str_cat.h"
#include "engine/data/dataset_info.h"
#include "tests/fuzz/mutation.h"
#include "tests/fuzz/target.h"

namespace penstock::fuzz {
namespace {

using nlohmann::ordered_json;

constexpr char kSeed[] = R"({
  "identity": {"file_name": "identity.json"},
  "alpaca": {"file_name": "a.csv", "columns": {"prompt": "q", "query": "i", "response": "r",
             "history": "h", "system": "s"}, "num_samples": 10, "split": "train"},
  "chat": {"file_name": "c", "formatting": "sharegpt", "ranking": false,
           "columns": {"messages": "turns", "tools": "tools"},
           "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user",
                    "assistant_tag": "assistant", "observation_tag": "tool",
                    "function_tag": "call", "system_tag": "system"}},
  "openai": {"file_name": "o.jsonl", "formatting": "openai"},
  "hub": {"hf_hub_url": "a/b", "file_name": "x.json"}})";

class DatasetInfoTarget final : public Target {
 public:
  absl::StatusOr<Outcome> RunCase(Random& random) override {
    std::string text = kSeed;
    if (random.OneIn(4)) {
      text = MutateText(std::move(text), {}, kSeed, random);
    } else {
      ordered_json root = ordered_json::parse(text);
      MutateJson(root, random);
      text = ToText(root);
    }
    Outcome outcome = Outcome::kRefused;
    for (const char* name : {"identity", "alpaca", "chat", "openai", "hub", ""}) {
      const auto info = ParseDatasetInfo(text, "dataset_info.json", name);
      if (!info.ok()) {
        if (absl::Status status = CheckRefusal(info.status(), text); !status.ok()) return status;
        continue;
      }
      outcome = Outcome::kAccepted;
      if (info->file_name.empty()) return Violation("an entry without a file", text);
      if (info->max_samples && *info->max_samples < 1) {
        return Violation(absl::StrCat("max_samples ", *info->max_samples), text);
      }
      const Columns& columns = info->format.columns;
      for (const Column* column :
           {&columns.prompt, &columns.query, &columns.response, &columns.history, &columns.messages,
            &columns.text, &columns.system, &columns.tools}) {
        if (column->used() && column->name.empty()) {
          return Violation("a used column without a name", text);
        }
      }
      Fingerprint(info->format);
    }
    return outcome;
  }
};

}  // namespace

std::unique_ptr<Target> MakeDatasetInfoTarget(const std::string& /*testdata*/) {
  return std::make_unique<DatasetInfoTarget>();
}

}  // namespace penstock::fuzz
