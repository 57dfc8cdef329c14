// Damage to texts, files and JSON: enough to be wrong, little enough to get past the first check.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"
#include "tests/fuzz/random.h"

namespace penstock::fuzz {

inline constexpr size_t kMaxCaseBytes = 20'000;

// One to four changes: bytes flipped, pieces cut out, doubled, moved in from `dictionary` or from
// `other`, or the end cut off. At most kMaxCaseBytes or text.size(), whichever is more.
std::string MutateText(std::string text, std::span<const std::string> dictionary,
                       std::string_view other, Random& random);

// Text in many scripts with a piece of everything that tokenizers treat in a way of its own; in
// one case of four with bytes that are no UTF-8.
std::string MakeText(Random& random);

// Another value in one place: a wrong type, a number at an edge, a pattern, an empty or missing
// part, or a copy of some other part. Long lists and objects (a vocabulary) are mostly replaced
// as a whole, so that most changes hit what is rare. Strings may be no UTF-8 afterwards.
void MutateJson(nlohmann::ordered_json& root, Random& random);

// As JSON, without the bytes that are no UTF-8.
std::string ToText(const nlohmann::ordered_json& value);

// Damage to a message in the wire format of Protocol Buffers: fields dropped, doubled, with
// another number, other bytes or other integers, inner messages too.
std::string MutateProto(std::string_view message, Random& random);

}  // namespace penstock::fuzz
