#include "tests/fuzz/server/message_maker.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "google/protobuf/descriptor.h"
#include "tests/fuzz/mutation.h"

namespace penstock::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kMaxDepth = 5;

constexpr int64_t kIntegers[] = {0,         1,         2,         3,         7,
                                 64,        512,       1024,      -1,        1 << 20,
                                 INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int64_t{1} << 40};
const double kReals[] = {0,
                         0.1,
                         0.5,
                         1,
                         3e-3,
                         2,
                         -1,
                         1e300,
                         5e-324,
                         std::nan(""),
                         std::numeric_limits<double>::infinity(),
                         -std::numeric_limits<double>::infinity()};

std::string Text(const FieldDescriptor& field, const std::vector<std::string>& words,
                 Random& random) {
  std::string text = random.OneIn(8) ? MakeText(random) : random.Pick(words);
  if (random.OneIn(8)) text = MutateText(std::move(text), words, random.Pick(words), random);
  if (random.OneIn(200)) text.assign(random.Below(300'000), 'a');
  // A string that is no UTF-8 could not be sent; bytes are damaged later.
  if (field.type() == FieldDescriptor::TYPE_STRING) {
    for (char& c : text) {
      if (static_cast<unsigned char>(c) >= 0x80) c = '?';
    }
  }
  return text;
}

void Fill(Message& message, int depth, const std::vector<std::string>& words, Random& random);

// Sets the field, or adds to it if it is repeated.
void Give(Message& message, const FieldDescriptor& field, int depth,
          const std::vector<std::string>& words, Random& random) {
  const Reflection& reflection = *message.GetReflection();
  const bool many = field.is_repeated();
  const int64_t integer = random.Pick(kIntegers);
  const double real = random.Pick(kReals);
#define PENSTOCK_GIVE(Type, value)                        \
  many ? reflection.Add##Type(&message, &field, (value))  \
       : reflection.Set##Type(&message, &field, (value)); \
  break
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      PENSTOCK_GIVE(Int32, static_cast<int32_t>(integer));
    case FieldDescriptor::CPPTYPE_INT64:
      PENSTOCK_GIVE(Int64, integer);
    case FieldDescriptor::CPPTYPE_UINT32:
      PENSTOCK_GIVE(UInt32, static_cast<uint32_t>(integer));
    case FieldDescriptor::CPPTYPE_UINT64:
      PENSTOCK_GIVE(UInt64, static_cast<uint64_t>(integer));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      PENSTOCK_GIVE(Double, real);
    case FieldDescriptor::CPPTYPE_FLOAT:
      PENSTOCK_GIVE(Float, static_cast<float>(real));
    case FieldDescriptor::CPPTYPE_BOOL:
      PENSTOCK_GIVE(Bool, random.OneIn(2));
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int count = field.enum_type()->value_count();
      const auto index = static_cast<int>(random.Below(static_cast<size_t>(count)));
      PENSTOCK_GIVE(EnumValue, random.OneIn(20) ? 99 : field.enum_type()->value(index)->number());
    }
    case FieldDescriptor::CPPTYPE_STRING:
      PENSTOCK_GIVE(String, Text(field, words, random));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (depth >= kMaxDepth) break;
      Fill(many ? *reflection.AddMessage(&message, &field)
                : *reflection.MutableMessage(&message, &field),
           depth + 1, words, random);
      break;
  }
#undef PENSTOCK_GIVE
}

void Fill(Message& message, int depth, const std::vector<std::string>& words, Random& random) {
  const auto& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    if (random.OneIn(2)) continue;
    const FieldDescriptor& field = *descriptor.field(i);
    for (size_t n = field.is_repeated() ? random.Below(4) : 1; n > 0; --n) {
      Give(message, field, depth, words, random);
    }
  }
}

// Some message within, or the message itself.
Message& SomePart(Message& message, Random& random) {
  Message* part = &message;
  while (!random.OneIn(4)) {
    std::vector<const FieldDescriptor*> set, messages;
    part->GetReflection()->ListFields(*part, &set);
    for (const FieldDescriptor* field : set) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) messages.push_back(field);
    }
    if (messages.empty()) break;
    const FieldDescriptor& field = *random.Pick(messages);
    const Reflection& reflection = *part->GetReflection();
    if (!field.is_repeated()) {
      part = reflection.MutableMessage(part, &field);
    } else {
      const auto size = static_cast<size_t>(reflection.FieldSize(*part, &field));
      part = reflection.MutableRepeatedMessage(part, &field, static_cast<int>(random.Below(size)));
    }
  }
  return *part;
}

}  // namespace

void FillMessage(Message& message, const std::vector<std::string>& words, Random& random) {
  Fill(message, 0, words, random);
}

void ChangeMessage(Message& message, const std::vector<std::string>& words, Random& random) {
  for (size_t changes = random.Below(3) + 1; changes > 0; --changes) {
    Message& part = SomePart(message, random);
    const auto& descriptor = *part.GetDescriptor();
    if (descriptor.field_count() == 0) continue;
    const FieldDescriptor& field = *descriptor.field(
        static_cast<int>(random.Below(static_cast<size_t>(descriptor.field_count()))));
    if (!field.is_repeated() || random.OneIn(2)) part.GetReflection()->ClearField(&part, &field);
    if (!random.OneIn(4)) Give(part, field, /*depth=*/2, words, random);
  }
}

std::string DamagedBytes(const Message& message, Random& random) {
  std::string bytes = message.SerializeAsString();
  if (!random.OneIn(3)) return bytes;
  return random.OneIn(4) ? MutateText(std::move(bytes), {}, "\x0a\xff\xff\xff\x7f", random)
                         : MutateProto(bytes, random);
}

}  // namespace penstock::fuzz
