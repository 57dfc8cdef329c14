#include "engine/train/exported_template.h"

#include <algorithm>
#include <string>

#include "nlohmann/json.hpp"

namespace penstock {
namespace {

SideFile* Find(std::vector<SideFile>& files, const char* name) {
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const SideFile& file) { return file.name == name; });
  return found == files.end() ? nullptr : &*found;
}

}  // namespace

void SetChatTemplate(const ChatTemplate& used, std::vector<SideFile>& side_files) {
  if (SideFile* const config = Find(side_files, "tokenizer_config.json")) {
    auto root = nlohmann::ordered_json::parse(config->content, nullptr, /*allow_exceptions=*/false);
    if (root.is_object()) {
      root["chat_template"] = used.source();
      using Json = nlohmann::ordered_json;
      config->content = root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    }
  }
  constexpr char kFile[] = "chat_template.jinja";
  if (SideFile* const file = Find(side_files, kFile)) {
    file->content = used.source();
  } else {
    side_files.push_back({.name = kFile, .content = used.source()});
  }
}

}  // namespace penstock
