#include "proto/message_print.h"

#include <charconv>
#include <memory>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/any.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "google/protobuf/util/json_util.h"

namespace penstock {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::Reflection;

// Words some YAML reader takes for something else than text.
bool IsYamlWord(absl::string_view text) {
  static constexpr absl::string_view kWords[] = {"true", "false", "yes", "no",   "on",
                                                 "off",  "y",     "n",   "null", ""};
  for (const absl::string_view word : kWords) {
    if (absl::EqualsIgnoreCase(text, word)) return true;
  }
  return false;
}

bool IsPlain(absl::string_view text) {
  if (IsYamlWord(text) || !(absl::ascii_isalpha(text[0]) || text[0] == '/')) return false;
  for (const char c : text) {
    if (!absl::ascii_isalnum(c) && !absl::StrContains("/._-", absl::string_view(&c, 1)))
      return false;
  }
  return true;
}

// Plain where no reader can misread it, else double-quoted.
std::string YamlText(absl::string_view text) {
  if (IsPlain(text)) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&quoted, "\\", absl::string_view(&c, 1));
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (absl::ascii_iscntrl(c)) {
      absl::StrAppendFormat(&quoted, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

template <typename Float>
std::string ShortestNumber(Float value) {
  char text[64];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  std::string number(text, end);
  // Without a point 1e-05 is text to YAML 1.1 readers.
  const size_t exponent = number.find('e');
  if (exponent != std::string::npos && number.find('.') == std::string::npos) {
    number.insert(exponent, ".0");
  }
  return number;
}

class YamlWriter {
 public:
  void Write(const Message& message, int indent) {
    if (const auto* any = dynamic_cast<const google::protobuf::Any*>(&message)) {
      WriteAny(*any, indent);
      return;
    }
    std::vector<const FieldDescriptor*> fields;
    message.GetReflection()->ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) WriteField(message, *field, indent);
  }

  std::string Take() && { return std::move(text_); }

 private:
  // The type and, if this build knows it, what is inside.
  void WriteAny(const google::protobuf::Any& any, int indent) {
    Line(indent, absl::StrCat("\"@type\": ", YamlText(any.type_url())));
    const std::string name = any.type_url().substr(any.type_url().rfind('/') + 1);
    const Descriptor* type = DescriptorPool::generated_pool()->FindMessageTypeByName(name);
    if (type == nullptr) return;
    const Message* prototype = MessageFactory::generated_factory()->GetPrototype(type);
    const std::unique_ptr<Message> inside(prototype->New());
    if (any.UnpackTo(inside.get())) Write(*inside, indent);
  }

  void WriteField(const Message& message, const FieldDescriptor& field, int indent) {
    if (field.is_map()) {
      Line(indent, absl::StrCat(field.name(), ":"));
      WriteMap(message, field, indent + 2);
    } else if (field.is_repeated()) {
      Line(indent, absl::StrCat(field.name(), ":"));
      for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
        WriteItem(message, field, i, indent);
      }
    } else {
      WriteMember(message, field, field.name(), indent);
    }
  }

  // "key: value", or "key:" and the message beneath.
  void WriteMember(const Message& message, const FieldDescriptor& field, absl::string_view key,
                   int indent) {
    if (IsNested(message, field, -1)) {
      const Message& inner = message.GetReflection()->GetMessage(message, &field);
      const size_t before = text_.size();
      Line(indent, absl::StrCat(key, ":"));
      const size_t after = text_.size();
      Write(inner, indent + 2);
      if (text_.size() == after) {
        text_.resize(before);
        Line(indent, absl::StrCat(key, ": {}"));
      }
    } else {
      Line(indent, absl::StrCat(key, ": ", Scalar(message, field, -1)));
    }
  }

  void WriteItem(const Message& message, const FieldDescriptor& field, int index, int indent) {
    if (!IsNested(message, field, index)) {
      Line(indent, absl::StrCat("- ", Scalar(message, field, index)));
      return;
    }
    const size_t start = text_.size();
    Write(message.GetReflection()->GetRepeatedMessage(message, &field, index), indent + 2);
    if (text_.size() == start) {
      Line(indent, "- {}");
    } else {
      text_[start + static_cast<size_t>(indent)] = '-';  // in place of the first line's indent
    }
  }

  void WriteMap(const Message& message, const FieldDescriptor& field, int indent) {
    const FieldDescriptor& key_field = *field.message_type()->map_key();
    const FieldDescriptor& value_field = *field.message_type()->map_value();
    for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
      const Message& entry = message.GetReflection()->GetRepeatedMessage(message, &field, i);
      WriteMember(entry, value_field, Scalar(entry, key_field, -1), indent);
    }
  }

  // Timestamps are messages but print as one scalar.
  static bool IsNested(const Message& message, const FieldDescriptor& field, int index) {
    return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
           TimestampOf(message, field, index) == nullptr;
  }

  static const google::protobuf::Timestamp* TimestampOf(const Message& message,
                                                        const FieldDescriptor& field, int index) {
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return nullptr;
    const Reflection& reflection = *message.GetReflection();
    const Message& inner = index < 0 ? reflection.GetMessage(message, &field)
                                     : reflection.GetRepeatedMessage(message, &field, index);
    return dynamic_cast<const google::protobuf::Timestamp*>(&inner);
  }

  // The element `index` of a repeated field, or with -1 a singular one.
  static std::string Scalar(const Message& message, const FieldDescriptor& field, int index) {
    const Reflection& reflection = *message.GetReflection();
    const auto get = [&](auto singular, auto repeated) {
      return index < 0 ? (reflection.*singular)(message, &field)
                       : (reflection.*repeated)(message, &field, index);
    };
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return absl::StrCat(get(&Reflection::GetInt32, &Reflection::GetRepeatedInt32));
      case FieldDescriptor::CPPTYPE_INT64:
        return absl::StrCat(get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64));
      case FieldDescriptor::CPPTYPE_UINT32:
        return absl::StrCat(get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32));
      case FieldDescriptor::CPPTYPE_UINT64:
        return absl::StrCat(get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return ShortestNumber(get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble));
      case FieldDescriptor::CPPTYPE_FLOAT:
        return ShortestNumber(get(&Reflection::GetFloat, &Reflection::GetRepeatedFloat));
      case FieldDescriptor::CPPTYPE_BOOL:
        return get(&Reflection::GetBool, &Reflection::GetRepeatedBool) ? "true" : "false";
      case FieldDescriptor::CPPTYPE_ENUM:
        return ShortEnumName(*field.enum_type(),
                             get(&Reflection::GetEnumValue, &Reflection::GetRepeatedEnumValue));
      case FieldDescriptor::CPPTYPE_STRING:
        return YamlText(get(&Reflection::GetString, &Reflection::GetRepeatedString));
      case FieldDescriptor::CPPTYPE_MESSAGE:
        break;
    }
    const google::protobuf::Timestamp& time = *TimestampOf(message, field, index);
    return absl::FormatTime("\"%Y-%m-%dT%H:%M:%E3SZ\"",
                            absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos()),
                            absl::UTCTimeZone());
  }

  void Line(int indent, absl::string_view line) {
    text_.append(static_cast<size_t>(indent), ' ');
    absl::StrAppend(&text_, line, "\n");
  }

  std::string text_;
};

// SCHEDULE_KIND_ for ScheduleKind.
std::string ValuePrefix(const EnumDescriptor& type) {
  std::string prefix;
  for (const char c : type.name()) {
    if (absl::ascii_isupper(c) && !prefix.empty()) prefix += '_';
    prefix += absl::ascii_toupper(c);
  }
  return prefix + "_";
}

}  // namespace

std::string MessageToYaml(const Message& message) {
  YamlWriter writer;
  writer.Write(message, 0);
  std::string text = std::move(writer).Take();
  return text.empty() ? "{}\n" : text;
}

std::string MessageToJson(const Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  std::string text;
  // Fails only on an Any whose type this build lacks; YAML shows the name of the type.
  if (!google::protobuf::util::MessageToJsonString(message, &text, options).ok()) {
    return absl::StrCat("{\"unprintable\": \"", message.GetDescriptor()->full_name(), "\"}\n");
  }
  return text;
}

std::string ShortEnumName(const EnumDescriptor& type, int number) {
  const auto* value = type.FindValueByNumber(number);
  if (value == nullptr) return absl::StrCat(number);
  const std::string prefix = ValuePrefix(type);
  absl::string_view name = value->name();
  if (absl::StartsWith(name, prefix)) name.remove_prefix(prefix.size());
  return absl::AsciiStrToLower(name);
}

}  // namespace penstock
