// Conversations of datasets as values that chat templates see.
#pragma once

#include <optional>

#include "engine/data/example.h"
#include "engine/data/example_encoder.h"
#include "engine/data/hash.h"
#include "engine/data/row_error.h"
#include "engine/template/chat_template.h"

namespace penstock {

// Key order is kept. Refuses integers that 64 bits do not hold.
std::optional<RowError> ToConversation(const Chat& chat, Conversation& conversation);

// All that decides what is rendered. The time only if the template asks for it.
void AddToHash(const ChatSetup& setup, ContentHash& hash);

}  // namespace penstock
