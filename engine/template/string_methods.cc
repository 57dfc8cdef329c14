// The methods of strings.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/interpreter.h"
#include "engine/template/methods.h"
#include "engine/template/operators.h"
#include "engine/template/string_format.h"
#include "engine/template/text.h"

namespace penstock::jinja {
namespace {

constexpr size_t kNowhere = std::string_view::npos;

struct MethodCall {
  Interpreter& interpreter;
  const Value& self;
  std::string_view name;
  CallArguments arguments;

  const std::string& text() const { return self.string(); }
  absl::StatusOr<Value> Make(std::string_view result) {
    return interpreter.NewStringLike(self, std::string(result));
  }
  absl::StatusOr<std::vector<std::optional<Value>>> Bind(
      std::initializer_list<std::string_view> names, size_t required) {
    return BindArguments(name, std::move(arguments), names, required);
  }
};

absl::Status NeedString(const Value& value) {
  if (value.is_string()) return absl::OkStatus();
  return TypeFailure(value, "stands where a string is needed");
}

absl::StatusOr<int64_t> NeedInteger(const std::optional<Value>& value, int64_t missing) {
  if (!value.has_value()) return missing;
  if (!value->is_integral()) return TypeFailure(*value, "stands where an integer is needed");
  return value->integer();
}

// The bytes [begin, end) between two optional code point indices, as Python clamps them; nullopt
// if they are the wrong way round, where nothing is found, not even "".
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
};
absl::StatusOr<std::optional<ByteRange>> RangeOf(const Value& self,
                                                 const std::optional<Value>& start,
                                                 const std::optional<Value>& stop) {
  const int64_t length = self.string_length();
  int64_t bounds[2] = {0, length};
  const std::optional<Value>* given[2] = {&start, &stop};
  for (int i = 0; i < 2; ++i) {
    if (!given[i]->has_value() || (*given[i])->is_none()) continue;
    PENSTOCK_ASSIGN_OR_RETURN(bounds[i], NeedInteger(*given[i], 0));
    if (bounds[i] < 0) bounds[i] = std::max(bounds[i], -length) + length;
  }
  bounds[1] = std::min(bounds[1], length);
  if (bounds[0] > bounds[1]) return std::optional<ByteRange>();
  const ByteRange range = {ByteOffset(self.string(), bounds[0]),
                           ByteOffset(self.string(), bounds[1])};
  return std::optional<ByteRange>(range);
}

absl::StatusOr<Value> StripMethod(MethodCall& call) {
  const Side side = call.name == "strip"    ? Side::kBoth
                    : call.name == "lstrip" ? Side::kLeft
                                            : Side::kRight;
  PENSTOCK_ASSIGN_OR_RETURN(auto bound, call.Bind({""}, 0));
  if (!bound[0].has_value() || bound[0]->is_none()) return call.Make(Strip(call.text(), side));
  PENSTOCK_RETURN_IF_ERROR(NeedString(*bound[0]));
  // Each code point that goes is looked for among the characters.
  PENSTOCK_RETURN_IF_ERROR(call.interpreter.Charge(call.self.weight() * bound[0]->weight()));
  return call.Make(Strip(call.text(), side, bound[0]->string()));
}

absl::StatusOr<Value> AffixMethod(MethodCall& call) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound, call.Bind({"", "", ""}, 1));
  PENSTOCK_ASSIGN_OR_RETURN(const auto range, RangeOf(call.self, bound[1], bound[2]));
  std::vector<Value> affixes;
  if (bound[0]->is(Kind::kTuple)) {
    affixes = bound[0]->list();
  } else {
    affixes.push_back(*bound[0]);
  }
  for (const Value& affix : affixes) {
    PENSTOCK_RETURN_IF_ERROR(NeedString(affix));
    PENSTOCK_RETURN_IF_ERROR(call.interpreter.Charge(affix.weight()));
    if (!range.has_value()) continue;
    const std::string& part = affix.string();
    const auto text = std::string_view(call.text()).substr(range->begin, range->end - range->begin);
    if (part.size() > text.size()) continue;
    const size_t at = call.name == "startswith" ? 0 : text.size() - part.size();
    if (text.compare(at, part.size(), part) == 0) return Value::Bool(true);
  }
  return Value::Bool(false);
}

absl::StatusOr<Value> RemoveAffixMethod(MethodCall& call) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound, call.Bind({""}, 1));
  PENSTOCK_RETURN_IF_ERROR(NeedString(*bound[0]));
  const std::string& affix = bound[0]->string();
  const std::string_view text = call.text();
  if (affix.size() > text.size()) return call.Make(text);
  const bool prefix = call.name == "removeprefix";
  const size_t at = prefix ? 0 : text.size() - affix.size();
  if (text.compare(at, affix.size(), affix) != 0) return call.Make(text);
  return call.Make(prefix ? text.substr(affix.size()) : text.substr(0, at));
}

// Where `part` last occurs in [begin, end) of `text`. The work is paid for, as it may take time
// in proportion to both sizes.
absl::StatusOr<size_t> FindLast(Interpreter& interpreter, std::string_view text,
                                std::string_view part) {
  const int64_t sizes =
      static_cast<int64_t>(text.size() / 256 + 1) * static_cast<int64_t>(part.size() / 16 + 1);
  PENSTOCK_RETURN_IF_ERROR(interpreter.Charge(sizes));
  return text.rfind(part);
}

absl::StatusOr<Value> FindMethodOf(MethodCall& call) {
  const bool last = call.name[0] == 'r';
  PENSTOCK_ASSIGN_OR_RETURN(auto bound, call.Bind({"", "", ""}, 1));
  PENSTOCK_RETURN_IF_ERROR(NeedString(*bound[0]));
  PENSTOCK_RETURN_IF_ERROR(call.interpreter.Charge(call.self.weight()));
  PENSTOCK_ASSIGN_OR_RETURN(const auto range, RangeOf(call.self, bound[1], bound[2]));
  size_t found = kNowhere;
  if (range.has_value()) {
    const auto text = std::string_view(call.text()).substr(range->begin, range->end - range->begin);
    if (last) {
      PENSTOCK_ASSIGN_OR_RETURN(found, FindLast(call.interpreter, text, bound[0]->string()));
    } else {
      found = FindText(text, bound[0]->string());
    }
  }
  if (found != kNowhere) {
    return Value::Int(
        CountCodePoints(std::string_view(call.text()).substr(0, range->begin + found)));
  }
  if (call.name == "find" || call.name == "rfind") return Value::Int(-1);
  return Failure(absl::StrCat(Absl(call.name), ": the text is not found"));
}

absl::StatusOr<Value> CountMethod(MethodCall& call) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound, call.Bind({"", "", ""}, 1));
  PENSTOCK_RETURN_IF_ERROR(NeedString(*bound[0]));
  PENSTOCK_RETURN_IF_ERROR(call.interpreter.Charge(call.self.weight()));
  PENSTOCK_ASSIGN_OR_RETURN(const auto range, RangeOf(call.self, bound[1], bound[2]));
  if (!range.has_value()) return Value::Int(0);
  const auto text = std::string_view(call.text()).substr(range->begin, range->end - range->begin);
  const std::string& part = bound[0]->string();
  if (part.empty()) return Value::Int(CountCodePoints(text) + 1);
  int64_t count = 0;
  for (size_t at = 0; (at = FindText(text, part, at)) != kNowhere; at += part.size()) ++count;
  return Value::Int(count);
}

// Parts between white space; `limit` cuts at most, or -1.
std::vector<std::string_view> SplitSpace(std::string_view text, int64_t limit, bool from_right) {
  std::vector<std::string_view> parts;
  const auto word_end = [&] {
    size_t at = 0;
    while (at < text.size()) {
      size_t next = at;
      if (IsSpace(NextCodePoint(text, &next))) break;
      at = next;
    }
    return at;
  };
  if (!from_right) {
    for (text = Strip(text, Side::kLeft); !text.empty(); text = Strip(text, Side::kLeft)) {
      if (limit >= 0 && static_cast<int64_t>(parts.size()) >= limit) {
        parts.push_back(text);
        break;
      }
      const size_t end = word_end();
      parts.push_back(text.substr(0, end));
      text.remove_prefix(end);
    }
    return parts;
  }
  for (text = Strip(text, Side::kRight); !text.empty(); text = Strip(text, Side::kRight)) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) >= limit) {
      parts.push_back(text);
      break;
    }
    // The last word: back to the last white space.
    size_t begin = text.size();
    while (begin > 0) {
      size_t previous = begin - 1;
      while ((static_cast<unsigned char>(text[previous]) & 0xC0) == 0x80) --previous;
      size_t next = previous;
      if (IsSpace(NextCodePoint(text, &next))) break;
      begin = previous;
    }
    parts.push_back(text.substr(begin));
    text.remove_suffix(text.size() - begin);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

absl::StatusOr<std::vector<std::string_view>> SplitAt(Interpreter& interpreter,
                                                      std::string_view text,
                                                      std::string_view separator, int64_t limit,
                                                      bool from_right) {
  std::vector<std::string_view> parts;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    size_t at = kNowhere;
    if (from_right) {
      PENSTOCK_ASSIGN_OR_RETURN(at, FindLast(interpreter, text, separator));
    } else {
      at = FindText(text, separator);
    }
    if (at == kNowhere) break;
    parts.push_back(from_right ? text.substr(at + separator.size()) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(at + separator.size());
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

absl::StatusOr<Value> ToList(MethodCall& call, const std::vector<std::string_view>& parts) {
  PENSTOCK_RETURN_IF_ERROR(call.interpreter.CheckItems(static_cast<int64_t>(parts.size())));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) {
    PENSTOCK_ASSIGN_OR_RETURN(Value item, call.Make(part));
    items.push_back(std::move(item));
  }
  return call.interpreter.NewList(std::move(items));
}

absl::StatusOr<Value> SplitMethod(MethodCall& call) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound, call.Bind({"sep", "maxsplit"}, 0));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t limit, NeedInteger(bound[1], -1));
  PENSTOCK_RETURN_IF_ERROR(call.interpreter.Charge(call.self.weight()));
  const bool from_right = call.name == "rsplit";
  if (!bound[0].has_value() || bound[0]->is_none()) {
    return ToList(call, SplitSpace(call.text(), limit, from_right));
  }
  PENSTOCK_RETURN_IF_ERROR(NeedString(*bound[0]));
  if (bound[0]->string().empty()) return Failure("split: the separator is empty");
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::vector<std::string_view> parts,
      SplitAt(call.interpreter, call.text(), bound[0]->string(), limit, from_right));
  return ToList(call, parts);
}

absl::StatusOr<Value> PartitionMethod(MethodCall& call) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound, call.Bind({""}, 1));
  PENSTOCK_RETURN_IF_ERROR(NeedString(*bound[0]));
  const std::string& separator = bound[0]->string();
  if (separator.empty()) return Failure("partition: the separator is empty");
  const bool from_right = call.name == "rpartition";
  PENSTOCK_RETURN_IF_ERROR(call.interpreter.Charge(call.self.weight()));
  size_t at = kNowhere;
  if (from_right) {
    PENSTOCK_ASSIGN_OR_RETURN(at, FindLast(call.interpreter, call.text(), separator));
  } else {
    at = FindText(call.text(), separator);
  }
  const std::string_view text = call.text();
  std::string_view parts[3] = {text, "", ""};
  if (at != kNowhere) {
    parts[0] = text.substr(0, at);
    parts[1] = separator;
    parts[2] = text.substr(at + separator.size());
  } else if (from_right) {
    std::swap(parts[0], parts[2]);
  }
  std::vector<Value> items;
  for (const std::string_view part : parts) {
    PENSTOCK_ASSIGN_OR_RETURN(Value item, call.Make(part));
    items.push_back(std::move(item));
  }
  return call.interpreter.NewTuple(std::move(items));
}

absl::StatusOr<Value> SplitLinesMethod(MethodCall& call) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound, call.Bind({"keepends"}, 0));
  PENSTOCK_ASSIGN_OR_RETURN(const bool keep,
                            call.interpreter.Truth(bound[0].value_or(Value::Bool(false))));
  const std::string_view text = call.text();
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t c = NextCodePoint(text, &at);
    if (!IsLineEnd(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return ToList(call, lines);
}

absl::StatusOr<Value> JoinMethod(MethodCall& call) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound, call.Bind({""}, 1));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Value> items, call.interpreter.ToVector(*bound[0]));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    PENSTOCK_RETURN_IF_ERROR(NeedString(items[i]));
    if (i > 0) out += call.text();
    out += call.self.is_markup() && !items[i].is_markup() ? EscapeHtml(items[i].string())
                                                          : items[i].string();
    PENSTOCK_RETURN_IF_ERROR(call.interpreter.CheckBytes(static_cast<int64_t>(out.size())));
  }
  return call.Make(out);
}

absl::StatusOr<Value> ReplaceMethod(MethodCall& call) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound, call.Bind({"", "", ""}, 2));
  PENSTOCK_RETURN_IF_ERROR(NeedString(*bound[0]));
  PENSTOCK_RETURN_IF_ERROR(NeedString(*bound[1]));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t limit, NeedInteger(bound[2], -1));
  const auto safe = [&](const Value& part) {
    return call.self.is_markup() && !part.is_markup() ? EscapeHtml(part.string()) : part.string();
  };
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::string replaced,
      ReplaceText(call.interpreter, call.text(), bound[0]->string(), safe(*bound[1]), limit));
  return call.Make(replaced);
}

absl::StatusOr<Value> PadMethod(MethodCall& call) {
  const bool zeros = call.name == "zfill";
  PENSTOCK_ASSIGN_OR_RETURN(auto bound, zeros ? call.Bind({""}, 1) : call.Bind({"", ""}, 1));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t width, NeedInteger(bound[0], 0));
  std::string fill = zeros ? "0" : " ";
  if (!zeros && bound[1].has_value()) {
    PENSTOCK_RETURN_IF_ERROR(NeedString(*bound[1]));
    if (bound[1]->string_length() != 1) return Failure("the fill must be one character");
    fill = bound[1]->string();
  }
  const int64_t missing = std::max<int64_t>(width - call.self.string_length(), 0);
  if (missing == 0) return call.Make(call.text());
  PENSTOCK_RETURN_IF_ERROR(call.interpreter.CheckBytes(missing));
  int64_t left = call.name == "ljust" ? 0 : missing;
  if (call.name == "center") left = missing / 2 + (missing & width & 1);
  std::string out, head;
  std::string_view rest = call.text();
  if (zeros && !rest.empty() && (rest[0] == '+' || rest[0] == '-')) {
    head = rest.substr(0, 1);
    rest.remove_prefix(1);
  }
  out += head;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += rest;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return call.Make(out);
}

// isalpha and its like: something of a class in it, nothing outside.
absl::StatusOr<Value> ClassMethod(MethodCall& call) {
  PENSTOCK_RETURN_IF_ERROR(call.Bind({}, 0).status());
  PENSTOCK_RETURN_IF_ERROR(call.interpreter.Charge(call.self.weight()));
  const std::string_view name = call.name, text = call.text();
  const bool lower = name == "islower", upper = name == "isupper";
  bool any = false, all = true;
  for (size_t at = 0; at < text.size() && all;) {
    const char32_t c = NextCodePoint(text, &at);
    bool in = false;
    if (lower || upper) {
      any = any || (lower ? IsLowercase(c) : IsUppercase(c));
      all = !(lower ? IsUppercase(c) : IsLowercase(c)) && !IsTitlecase(c);
      continue;
    }
    if (name == "isascii") in = c < 0x80;
    if (name == "isspace") in = IsSpace(c);
    if (name == "isalpha") in = IsAlphabetic(c);
    if (name == "isdigit") in = IsDigit(c);
    if (name == "isdecimal") in = IsDecimal(c);
    if (name == "isalnum") in = IsAlphabetic(c) || IsDigit(c);
    if (name == "isprintable") in = IsPrintable(c);
    any = any || in;
    all = in;
  }
  if (text.empty()) return Value::Bool(name == "isascii" || name == "isprintable");
  return Value::Bool(any && all);
}

absl::StatusOr<Value> CaseMethod(MethodCall& call) {
  PENSTOCK_RETURN_IF_ERROR(call.Bind({}, 0).status());
  if (call.name == "upper") return call.Make(ToUpper(call.text()));
  if (call.name == "lower") return call.Make(ToLower(call.text()));
  if (call.name == "title") return call.Make(ToTitle(call.text()));
  return call.Make(Capitalize(call.text()));
}

struct StringMethod {
  std::string_view name;
  absl::StatusOr<Value> (*call)(MethodCall& call);
};
constexpr StringMethod kStringMethods[] = {{"capitalize", CaseMethod},
                                           {"center", PadMethod},
                                           {"count", CountMethod},
                                           {"endswith", AffixMethod},
                                           {"find", FindMethodOf},
                                           {"index", FindMethodOf},
                                           {"isalnum", ClassMethod},
                                           {"isalpha", ClassMethod},
                                           {"isascii", ClassMethod},
                                           {"isdecimal", ClassMethod},
                                           {"isdigit", ClassMethod},
                                           {"islower", ClassMethod},
                                           {"isprintable", ClassMethod},
                                           {"isspace", ClassMethod},
                                           {"isupper", ClassMethod},
                                           {"join", JoinMethod},
                                           {"ljust", PadMethod},
                                           {"lower", CaseMethod},
                                           {"lstrip", StripMethod},
                                           {"partition", PartitionMethod},
                                           {"removeprefix", RemoveAffixMethod},
                                           {"removesuffix", RemoveAffixMethod},
                                           {"replace", ReplaceMethod},
                                           {"rfind", FindMethodOf},
                                           {"rindex", FindMethodOf},
                                           {"rjust", PadMethod},
                                           {"rpartition", PartitionMethod},
                                           {"rsplit", SplitMethod},
                                           {"rstrip", StripMethod},
                                           {"split", SplitMethod},
                                           {"splitlines", SplitLinesMethod},
                                           {"startswith", AffixMethod},
                                           {"strip", StripMethod},
                                           {"title", CaseMethod},
                                           {"upper", CaseMethod},
                                           {"zfill", PadMethod}};

}  // namespace

absl::StatusOr<std::string> ReplaceText(Interpreter& interpreter, std::string_view text,
                                        std::string_view old, std::string_view fresh,
                                        int64_t limit) {
  PENSTOCK_RETURN_IF_ERROR(interpreter.ChargeBytes(static_cast<int64_t>(text.size())));
  std::string out;
  size_t at = 0;
  for (int64_t count = 0; limit < 0 || count < limit; ++count) {
    size_t found = old.empty() ? at : FindText(text, old, at);
    if (found == kNowhere) break;
    if (old.empty() && count > 0) {  // Between all code points, and at both ends.
      if (at >= text.size()) break;
      found = at + Utf8Length(text[at]);
    }
    out.append(text.substr(at, found - at)).append(fresh);
    at = found + old.size();
    PENSTOCK_RETURN_IF_ERROR(interpreter.CheckBytes(static_cast<int64_t>(out.size())));
  }
  out.append(text.substr(at));
  return out;
}

absl::StatusOr<Value> CallStringMethod(Interpreter& interpreter, const Value& self,
                                       std::string_view name, CallArguments arguments) {
  if (name == "format") return FormatBraces(interpreter, self, arguments);
  for (const StringMethod& method : kStringMethods) {
    if (method.name != name) continue;
    MethodCall call{interpreter, self, name, std::move(arguments)};
    return method.call(call);
  }
  return Failure(absl::StrCat("the method ", Absl(name), " of strings is not supported"));
}

}  // namespace penstock::jinja
