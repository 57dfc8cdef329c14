// Messages as text for people and programs.
#pragma once

#include <string>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace penstock {

// Field names of the .proto, short enum names, only fields that are set: ParseMessageText() reads
// it back to the same message, so a printed spec is a job file.
std::string MessageToYaml(const google::protobuf::Message& message);

// Standard proto3 JSON, indented, ending with a newline.
std::string MessageToJson(const google::protobuf::Message& message);

// "cosine" for SCHEDULE_KIND_COSINE; "unspecified" for 0; the full name lower-cased if it lacks
// the prefix of its type; the number for a value this build does not know.
std::string ShortEnumName(const google::protobuf::EnumDescriptor& type, int number);

}  // namespace penstock
