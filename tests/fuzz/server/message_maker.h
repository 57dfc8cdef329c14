// Messages of any type with values that may mean something: the way past the first check.
#pragma once

#include <string>
#include <vector>

#include "google/protobuf/message.h"
#include "tests/fuzz/random.h"

namespace penstock::fuzz {

// Sets about half of the fields, messages within it too. Text is mostly taken from `words`.
void FillMessage(google::protobuf::Message& message, const std::vector<std::string>& words,
                 Random& random);

// One to three fields, at any depth, cleared or given another value.
void ChangeMessage(google::protobuf::Message& message, const std::vector<std::string>& words,
                   Random& random);

// The message's bytes, every third time damaged (MutateProto, MutateText).
std::string DamagedBytes(const google::protobuf::Message& message, Random& random);

}  // namespace penstock::fuzz
