#pragma once

#include <vector>

#include "engine/template/chat_template.h"
#include "engine/train/weight_table.h"

namespace penstock {

// Makes `used` the chat template of a model's side files, whatever they had before: as
// chat_template.jinja, and in tokenizer_config.json, if there is one, for readers that look only
// there. A model must be asked in the form that it was trained in.
void SetChatTemplate(const ChatTemplate& used, std::vector<SideFile>& side_files);

}  // namespace penstock
