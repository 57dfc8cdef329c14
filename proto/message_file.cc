#include "proto/message_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "google/protobuf/descriptor.h"
#include "proto/message_print.h"
#include "proto/message_tree.h"
#include "proto/scalar_text.h"

namespace penstock {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;

constexpr size_t kMaxQuotedBytes = 80;

std::string Quoted(absl::string_view text) {
  if (text.size() <= kMaxQuotedBytes) return absl::StrCat("\"", text, "\"");
  size_t cut = kMaxQuotedBytes;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
  return absl::StrCat("\"", text.substr(0, cut), "...\" (", text.size(), " bytes)");
}

// Levenshtein. Keys are short; callers bound `a`.
int64_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<int64_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int64_t diagonal = std::exchange(row[0], static_cast<int64_t>(i));
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

// The candidate that `text` was probably meant to be, or "".
std::string Nearest(absl::string_view text, const std::vector<std::string>& candidates) {
  if (text.empty() || text.size() > 64) return "";
  std::string best;
  int64_t best_distance = std::max<int64_t>(2, static_cast<int64_t>(text.size()) / 3) + 1;
  for (const std::string& candidate : candidates) {
    const int64_t distance = EditDistance(absl::AsciiStrToLower(text), candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::vector<std::string> EnumNames(const EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() != 0) names.push_back(ShortEnumName(type, type.value(i)->number()));
  }
  return names;
}

std::optional<const EnumValueDescriptor*> ToEnum(const EnumDescriptor& type,
                                                 absl::string_view text) {
  for (int i = 0; i < type.value_count(); ++i) {
    const EnumValueDescriptor* value = type.value(i);
    if (value->number() == 0) continue;  // UNSPECIFIED is said by leaving the key out
    if (absl::EqualsIgnoreCase(value->name(), text) ||
        absl::EqualsIgnoreCase(ShortEnumName(type, value->number()), text)) {
      return value;
    }
  }
  return std::nullopt;
}

template <typename Int>
std::optional<Int> ToInteger(absl::string_view text) {
  const std::optional<ParsedInteger> parsed = ParseInteger(text);
  if (!parsed) return std::nullopt;
  if (!parsed->negative || parsed->magnitude == 0) {
    if (parsed->magnitude > static_cast<uint64_t>(std::numeric_limits<Int>::max())) {
      return std::nullopt;
    }
    return static_cast<Int>(parsed->magnitude);
  }
  if (!std::numeric_limits<Int>::is_signed) return std::nullopt;
  constexpr uint64_t kLowest = static_cast<uint64_t>(std::numeric_limits<Int>::max()) + 1;
  if (parsed->magnitude > kLowest) return std::nullopt;
  return static_cast<Int>(-static_cast<int64_t>(parsed->magnitude - 1) - 1);
}

std::optional<float> ToFloat(absl::string_view text) {
  const std::optional<double> value = ParseDouble(text);
  if (!value || !std::isfinite(static_cast<float>(*value))) return std::nullopt;
  return static_cast<float>(*value);
}

std::optional<bool> ToBool(absl::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

// For `text` that is not one, or is one that the field cannot hold. Names of fields end in what
// they count.
template <typename Int>
std::string WholeNumber(const FieldDescriptor& field, absl::string_view text) {
  if (ParseInteger(text)) {
    return absl::StrCat("an integer from ", std::numeric_limits<Int>::min(), " to ",
                        std::numeric_limits<Int>::max());
  }
  if (absl::EndsWith(field.name(), "_bytes")) return "a whole number of bytes, such as 17179869184";
  if (absl::EndsWith(field.name(), "_seconds")) return "a whole number of seconds, such as 3600";
  return "a whole number, such as 1000 or 1e3";
}

// What a scalar field takes, for people. `text` is what it was given.
std::string Expected(const FieldDescriptor& field, absl::string_view text) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return WholeNumber<int32_t>(field, text);
    case FieldDescriptor::CPPTYPE_INT64:
      return WholeNumber<int64_t>(field, text);
    case FieldDescriptor::CPPTYPE_UINT32:
      return WholeNumber<uint32_t>(field, text);
    case FieldDescriptor::CPPTYPE_UINT64:
      return WholeNumber<uint64_t>(field, text);
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_STRING:
      return field.type() == FieldDescriptor::TYPE_STRING ? "text" : "no bytes in a text file";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "a map of keys and values";
    case FieldDescriptor::CPPTYPE_ENUM: {
      const std::vector<std::string> names = EnumNames(*field.enum_type());
      const std::string nearest = Nearest(text, names);
      return absl::StrCat(names.size() == 1 ? "" : "one of ", absl::StrJoin(names, ", "),
                          nearest.empty() ? "" : absl::StrCat("; did you mean \"", nearest, "\"?"));
    }
    default:
      return "a number such as 0.001, 1e-3 or 3";
  }
}

// Writes one tree into one message. Knows where it is (origin, path), for errors only.
class MessageReader {
 public:
  explicit MessageReader(absl::string_view origin) : origin_(origin) {}

  absl::Status Read(const MessageTree& tree, const std::string& path, Message* out) {
    if (tree.kind != MessageTree::Kind::kMap) {
      return Wrong(tree, path, Describe(tree), "a map of keys and values");
    }
    std::set<const FieldDescriptor*> seen;
    for (size_t i = 0; i < tree.keys.size(); ++i) {
      const MessageTree& value = tree.members[i];
      const std::string key_path = Join(path, tree.keys[i]);
      const FieldDescriptor* field = FindField(*out->GetDescriptor(), tree.keys[i]);
      if (field == nullptr) return UnknownKey(tree, i, key_path, *out->GetDescriptor());
      if (!seen.insert(field).second) {
        return Refused(tree.key_lines[i], key_path, "the key is given twice; keep one of them");
      }
      PENSTOCK_RETURN_IF_ERROR(CheckOneof(tree.key_lines[i], path, *field, seen));
      PENSTOCK_RETURN_IF_ERROR(ReadField(value, key_path, *field, out));
    }
    return absl::OkStatus();
  }

 private:
  static std::string Join(absl::string_view path, absl::string_view key) {
    if (key.size() > kMaxQuotedBytes) key = key.substr(0, kMaxQuotedBytes);
    return path.empty() ? std::string(key) : absl::StrCat(path, ".", key);
  }

  static const FieldDescriptor* FindField(const Descriptor& type, const std::string& key) {
    for (int i = 0; i < type.field_count(); ++i) {
      if (type.field(i)->name() == key || type.field(i)->json_name() == key) return type.field(i);
    }
    return nullptr;
  }

  static std::string Describe(const MessageTree& tree) {
    switch (tree.kind) {
      case MessageTree::Kind::kNull:
        return tree.text.empty() ? "nothing" : Quoted(tree.text);
      case MessageTree::Kind::kScalar:
        return Quoted(tree.text);
      case MessageTree::Kind::kList:
        return "a list";
      case MessageTree::Kind::kMap:
        return "a map";
    }
    return "";
  }

  absl::Status Refused(int64_t line, const std::string& path, absl::string_view what,
                       ErrorMetadata metadata = {}) const {
    metadata.insert({{"file", origin_}, {"line", absl::StrCat(line)}, {"field", path}});
    return Error(absl::StatusCode::kInvalidArgument, reason::kSpecInvalid,
                 absl::StrCat(origin_, ":", line, ": ", path, path.empty() ? "" : ": ", what),
                 metadata);
  }

  absl::Status Wrong(const MessageTree& tree, const std::string& path, absl::string_view found,
                     absl::string_view expected) const {
    std::string what = absl::StrCat("found ", found, ", expected ", expected);
    if (tree.kind == MessageTree::Kind::kNull) {
      absl::StrAppend(&what, "; leave the key out to get the default");
    }
    return Refused(tree.line, path, what,
                   {{"found", std::string(found)}, {"expected", std::string(expected)}});
  }

  absl::Status UnknownKey(const MessageTree& tree, size_t index, const std::string& path,
                          const Descriptor& type) const {
    std::vector<std::string> names;
    for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
    const std::string nearest = Nearest(tree.keys[index], names);
    std::string what = "unknown key; ";
    if (nearest.empty()) {
      absl::StrAppend(&what, "the keys here are ", absl::StrJoin(names, ", "));
    } else {
      absl::StrAppend(&what, "did you mean \"", nearest, "\"?");
    }
    return Refused(tree.key_lines[index], path, what,
                   {{"found", Quoted(tree.keys[index])}, {"expected", absl::StrJoin(names, ", ")}});
  }

  absl::Status CheckOneof(int64_t line, const std::string& path, const FieldDescriptor& field,
                          const std::set<const FieldDescriptor*>& seen) const {
    const OneofDescriptor* oneof = field.real_containing_oneof();
    if (oneof == nullptr) return absl::OkStatus();
    for (int i = 0; i < oneof->field_count(); ++i) {
      const FieldDescriptor* other = oneof->field(i);
      if (other == &field || seen.count(other) == 0) continue;
      return Refused(line, path,
                     absl::StrCat("found both \"", other->name(), "\" and \"", field.name(),
                                  "\", expected one of them; remove the other"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadField(const MessageTree& tree, const std::string& path,
                         const FieldDescriptor& field, Message* out) {
    const Reflection& reflection = *out->GetReflection();
    if (field.is_map()) return ReadMap(tree, path, field, out);
    if (field.is_repeated()) {
      reflection.ClearField(out, &field);
      return ReadList(tree, path, field, out);
    }
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      return Read(tree, path, reflection.MutableMessage(out, &field));
    }
    return ReadScalar(tree, path, field, out);
  }

  absl::Status ReadList(const MessageTree& tree, const std::string& path,
                        const FieldDescriptor& field, Message* out) {
    if (tree.kind != MessageTree::Kind::kList) {
      return Wrong(tree, path, Describe(tree), "a list, such as [a, b]");
    }
    for (size_t i = 0; i < tree.items.size(); ++i) {
      const std::string item_path = absl::StrCat(path, "[", i, "]");
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        PENSTOCK_RETURN_IF_ERROR(
            Read(tree.items[i], item_path, out->GetReflection()->AddMessage(out, &field)));
      } else {
        PENSTOCK_RETURN_IF_ERROR(ReadScalar(tree.items[i], item_path, field, out));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadMap(const MessageTree& tree, const std::string& path,
                       const FieldDescriptor& field, Message* out) {
    if (tree.kind != MessageTree::Kind::kMap) {
      return Wrong(tree, path, Describe(tree), "a map of keys and values");
    }
    const FieldDescriptor& key_field = *field.message_type()->map_key();
    const FieldDescriptor& value_field = *field.message_type()->map_value();
    std::set<std::string> seen;
    for (size_t i = 0; i < tree.keys.size(); ++i) {
      const std::string key_path = Join(path, tree.keys[i]);
      if (!seen.insert(tree.keys[i]).second) {
        return Refused(tree.key_lines[i], key_path, "the key is given twice; keep one of them");
      }
      MessageTree key;
      key.kind = MessageTree::Kind::kScalar;
      key.line = tree.key_lines[i];
      key.text = tree.keys[i];
      Message* entry = out->GetReflection()->AddMessage(out, &field);
      PENSTOCK_RETURN_IF_ERROR(ReadScalar(key, key_path, key_field, entry));
      PENSTOCK_RETURN_IF_ERROR(ReadField(tree.members[i], key_path, value_field, entry));
    }
    return absl::OkStatus();
  }

  absl::Status ReadScalar(const MessageTree& tree, const std::string& path,
                          const FieldDescriptor& field, Message* out);

  const std::string origin_;
};

absl::Status MessageReader::ReadScalar(const MessageTree& tree, const std::string& path,
                                       const FieldDescriptor& field, Message* out) {
  const Reflection& reflection = *out->GetReflection();
  const bool is_text = field.type() == FieldDescriptor::TYPE_STRING;
  // A string that was written as null or ~ is that text; a key without any value is a slip.
  const bool has_text = tree.kind == MessageTree::Kind::kScalar ||
                        (is_text && tree.kind == MessageTree::Kind::kNull && !tree.text.empty());
  const std::string& text = tree.text;
  const auto put = [&](const auto& value, auto set, auto add) {
    if (!has_text || !value) return false;
    if (field.is_repeated()) {
      (reflection.*add)(out, &field, *value);
    } else {
      (reflection.*set)(out, &field, *value);
    }
    return true;
  };
  bool done = false;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      done = put(ToInteger<int32_t>(text), &Reflection::SetInt32, &Reflection::AddInt32);
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      done = put(ToInteger<int64_t>(text), &Reflection::SetInt64, &Reflection::AddInt64);
      break;
    case FieldDescriptor::CPPTYPE_UINT32:
      done = put(ToInteger<uint32_t>(text), &Reflection::SetUInt32, &Reflection::AddUInt32);
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      done = put(ToInteger<uint64_t>(text), &Reflection::SetUInt64, &Reflection::AddUInt64);
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      done = put(ParseDouble(text), &Reflection::SetDouble, &Reflection::AddDouble);
      break;
    case FieldDescriptor::CPPTYPE_FLOAT:
      done = put(ToFloat(text), &Reflection::SetFloat, &Reflection::AddFloat);
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      done = put(ToBool(text), &Reflection::SetBool, &Reflection::AddBool);
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      done = put(ToEnum(*field.enum_type(), text), &Reflection::SetEnum, &Reflection::AddEnum);
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      done = is_text && put(std::optional(text), &Reflection::SetString, &Reflection::AddString);
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;  // Read() takes these
  }
  if (done) return absl::OkStatus();
  return Wrong(tree, path, Describe(tree), Expected(field, text));
}

absl::Status FileError(absl::StatusCode code, absl::string_view path, absl::string_view what) {
  return Error(code, reason::kIoError, absl::StrCat(path, ": ", what),
               {{"file", std::string(path)}});
}

// Reads at most one byte more than is allowed, so that a file growing meanwhile is noticed.
absl::StatusOr<std::string> ReadAll(int fd, const std::string& path) {
  std::string text(kMaxMessageTextBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = read(fd, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return FileError(absl::StatusCode::kUnavailable, path,
                       absl::StrCat("cannot be read: ", std::strerror(errno)));
    }
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  text.resize(size);
  return text;
}

}  // namespace

absl::Status ReadMessageFile(const std::string& path, Message* out) {
  // O_NONBLOCK: opening a FIFO must not hang.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int error = errno;
    return FileError(
        error == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kPermissionDenied, path,
        absl::StrCat("cannot be opened: ", std::strerror(error)));
  }
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return FileError(absl::StatusCode::kInvalidArgument, path,
                     "not a regular file; expected a YAML or JSON file");
  }
  absl::StatusOr<std::string> text = ReadAll(fd, path);
  close(fd);
  PENSTOCK_RETURN_IF_ERROR(text.status());
  return ParseMessageText(*text, path, out);
}

absl::Status ParseMessageText(absl::string_view text, absl::string_view origin, Message* out) {
  if (static_cast<int64_t>(text.size()) > kMaxMessageTextBytes) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kSpecInvalid,
                 absl::StrCat(origin, ": more than ", kMaxMessageTextBytes,
                              " bytes, the most a YAML or JSON file may have here"),
                 {{"file", std::string(origin)}});
  }
  PENSTOCK_ASSIGN_OR_RETURN(const MessageTree tree, ParseMessageTree(text, origin));
  out->Clear();
  return MessageReader(origin).Read(tree, "", out);
}

absl::Status SetMessageField(absl::string_view path, absl::string_view value,
                             absl::string_view origin, Message* out) {
  for (const absl::string_view part : {path, value}) {
    PENSTOCK_RETURN_IF_ERROR(CheckIsText(part, origin));
  }
  MessageTree tree;
  if (!value.empty() && (value[0] == '[' || value[0] == '{')) {
    PENSTOCK_ASSIGN_OR_RETURN(tree, ParseMessageTree(value, origin));
  } else {
    tree.kind = MessageTree::Kind::kScalar;
    tree.text = std::string(value);
  }
  tree.line = 1;
  const std::vector<std::string> keys = absl::StrSplit(path, '.');
  if (keys.size() > kMaxMessageTreeDepth) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kSpecInvalid,
                 absl::StrCat(origin, ": a path of ", keys.size(),
                              " keys; expected something like ", "optimizer.learning_rate"));
  }
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    MessageTree parent;
    parent.kind = MessageTree::Kind::kMap;
    parent.line = 1;
    parent.keys.push_back(*key);
    parent.key_lines.push_back(1);
    parent.members.push_back(std::move(tree));
    tree = std::move(parent);
  }
  return MessageReader(origin).Read(tree, "", out);
}

}  // namespace penstock
