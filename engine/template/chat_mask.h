// Which part of a conversation is trained: what the assistant said, with the tokens that end its
// turn, and nothing else.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/text_span.h"
#include "engine/template/chat_template.h"

namespace penstock {

struct TrainingText {
  // How the spans were found.
  enum class Source {
    kGenerationTag,  // the template marks them
    kPrefixes,       // by rendering the conversation up to each message
  };

  // The whole conversation. To be tokenised once, without adding special tokens: the template has
  // written those that belong there.
  std::string text;
  // In order, disjoint, not empty; at least one.
  std::vector<TrainedSpan> spans;
  Source source = Source::kGenerationTag;
};

// The text and what of it is trained. With {% generation %} in the template, what that marks.
// Without, the conversation is rendered up to each assistant message, with a generation prompt and
// without the message, then with the message: what the second has more than the first is what the
// assistant said. That needs both to be beginnings of the whole text; templates that change
// earlier turns (that drop their thinking, say) fail, with the message and where the texts part.
// InvalidArgument / DATA_INVALID also if there would be nothing to train, naming the way out: a
// template with {% generation %}, such as a built-in one (engine/template/builtin_templates.h).
absl::StatusOr<TrainingText> RenderForTraining(const ChatTemplate& chat_template,
                                               const Conversation& conversation,
                                               const ChatOptions& options);

// The spans of those messages whose flag in `train` is true. InvalidArgument if a flag is false and
// a span's message is not known, so that leaving it in or out would be a guess.
absl::StatusOr<std::vector<TrainedSpan>> SelectSpans(std::span<const TrainedSpan> spans,
                                                     const std::vector<bool>& train);

struct TokenMask {
  std::vector<uint8_t> trained;  // of each token, 0 or 1
  // Tokens that begin before a span and end inside it. They are not trained: what precedes the
  // answer is not the assistant's to say. To be counted, as it may hide a wrong template.
  int64_t straddling = 0;
};

// A token is trained if it begins inside a span. `tokens` are in order of their beginnings;
// those of zero bytes belong to where they stand. REQUIRES: spans are in order and disjoint.
TokenMask MaskTokens(std::span<const TrainedSpan> spans, std::span<const TextSpan> tokens);

}  // namespace penstock
