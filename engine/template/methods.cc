#include "engine/template/methods.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/ast.h"
#include "engine/template/interpreter.h"
#include "engine/template/operators.h"
#include "engine/template/text.h"

namespace penstock::jinja {
namespace {

struct MethodList {
  std::vector<std::string_view> supported, changing, unsupported;
};

const MethodList& MethodsOf(Kind kind) {
  // Never destroyed: templates may run while the process ends.
  static const auto* const string = new MethodList{
      {"capitalize", "center",      "count",      "endswith",     "find",         "format",
       "index",      "isalnum",     "isalpha",    "isascii",      "isdecimal",    "isdigit",
       "islower",    "isprintable", "isspace",    "isupper",      "join",         "ljust",
       "lower",      "lstrip",      "partition",  "removeprefix", "removesuffix", "replace",
       "rfind",      "rindex",      "rjust",      "rpartition",   "rsplit",       "rstrip",
       "split",      "splitlines",  "startswith", "strip",        "title",        "upper",
       "zfill"},
      {},
      {"casefold", "encode", "expandtabs", "format_map", "isidentifier", "isnumeric", "istitle",
       "maketrans", "swapcase", "translate"}};
  static const auto* const list =
      new MethodList{{"copy", "count", "index"},
                     {"append", "extend", "insert", "remove", "reverse", "sort"},
                     {"clear", "pop"}};
  static const auto* const tuple = new MethodList{{"count", "index"}, {}, {}};
  static const auto* const dict =
      new MethodList{{"copy", "get", "items", "keys", "values"},
                     {"clear", "pop", "popitem", "setdefault", "update"},
                     {"fromkeys"}};
  static const auto* const number = new MethodList{
      {},
      {},
      {"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes",
       "fromhex", "hex", "imag", "is_integer", "numerator", "real", "to_bytes"}};
  static const auto* const view = new MethodList{{}, {}, {"isdisjoint", "mapping"}};
  static const auto* const nothing = new MethodList{};
  switch (kind) {
    case Kind::kString:
      return *string;
    case Kind::kList:
      return *list;
    case Kind::kTuple:
    case Kind::kRange:
      return *tuple;
    case Kind::kDict:
      return *dict;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return *number;
    case Kind::kDictView:
      return *view;
    default:
      return *nothing;
  }
}

absl::StatusOr<Value> LoopMethod(Interpreter& interpreter, LoopObject& loop, std::string_view name,
                                 CallArguments arguments) {
  if (!arguments.named.empty())
    return Failure(absl::StrCat("loop.", Absl(name), " takes no names"));
  if (name == "cycle") {
    if (arguments.positional.empty()) return Failure("loop.cycle needs items");
    const int64_t count = static_cast<int64_t>(arguments.positional.size());
    return arguments.positional[static_cast<size_t>(std::max<int64_t>(loop.index0, 0) % count)];
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Value now, interpreter.NewTuple(arguments.positional));
  const bool changed = !loop.changed.has_value() || !Equal(Value::Tuple(*loop.changed), now);
  if (changed) loop.changed = std::move(arguments.positional);
  return Value::Bool(changed);
}

absl::StatusOr<Value> CyclerMethod(CyclerObject& cycler, std::string_view name,
                                   CallArguments arguments) {
  PENSTOCK_RETURN_IF_ERROR(BindArguments(name, std::move(arguments), {}).status());
  if (name == "reset") {
    cycler.position = 0;
    return Value::None();
  }
  const Value item = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return item;
}

absl::StatusOr<Value> NewView(Interpreter& interpreter, const Value& dict, DictPart part) {
  auto view = std::make_shared<DictViewObject>();
  AddPart(dict, view.get());
  view->dict = dict;
  view->part = part;
  return interpreter.Checked(Value::FromObject(Kind::kDictView, std::move(view)));
}

absl::StatusOr<Value> DictMethod(Interpreter& interpreter, const Value& self, std::string_view name,
                                 CallArguments arguments) {
  if (name == "get") {
    PENSTOCK_ASSIGN_OR_RETURN(auto bound, BindArguments("get", std::move(arguments), {"", ""}, 1));
    if (!IsHashable(*bound[0])) return TypeFailure(*bound[0], "cannot be a key");
    PENSTOCK_RETURN_IF_ERROR(interpreter.Charge(bound[0]->weight()));
    const Value* found = self.Find(*bound[0]);
    return found != nullptr ? *found : bound[1].value_or(Value::None());
  }
  PENSTOCK_RETURN_IF_ERROR(BindArguments(name, std::move(arguments), {}).status());
  if (name == "keys") return NewView(interpreter, self, DictPart::kKeys);
  if (name == "values") return NewView(interpreter, self, DictPart::kValues);
  if (name == "items") return NewView(interpreter, self, DictPart::kItems);
  return interpreter.NewDict(self.dict());  // copy
}

absl::StatusOr<Value> SequenceIndex(Interpreter& interpreter, const Value& self,
                                    CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound,
                            BindArguments("index", std::move(arguments), {"", "", ""}, 1));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.ToVector(self));
  const int64_t length = static_cast<int64_t>(items.size());
  int64_t limits[2] = {0, length};
  for (size_t i = 0; i < 2; ++i) {
    if (!bound[i + 1].has_value()) continue;
    if (!bound[i + 1]->is_integral()) return TypeFailure(*bound[i + 1], "cannot be an index");
    limits[i] = bound[i + 1]->integer();
    if (limits[i] < 0) limits[i] = std::max<int64_t>(limits[i] + length, 0);
  }
  for (int64_t i = limits[0]; i < std::min(limits[1], length); ++i) {
    const Value& item = items[static_cast<size_t>(i)];
    PENSTOCK_RETURN_IF_ERROR(interpreter.Charge(item.weight()));
    if (SameObject(item, *bound[0]) || Equal(item, *bound[0])) return Value::Int(i);
  }
  return Failure("index: the value is not in the list");
}

absl::StatusOr<Value> SequenceMethod(Interpreter& interpreter, const Value& self,
                                     std::string_view name, CallArguments arguments) {
  if (name == "index") return SequenceIndex(interpreter, self, std::move(arguments));
  if (name == "copy") {
    PENSTOCK_RETURN_IF_ERROR(BindArguments(name, std::move(arguments), {}).status());
    return interpreter.NewList(self.list());
  }
  PENSTOCK_ASSIGN_OR_RETURN(auto bound, BindArguments("count", std::move(arguments), {""}, 1));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.ToVector(self));
  int64_t count = 0;
  for (const Value& item : items) {
    PENSTOCK_RETURN_IF_ERROR(interpreter.Charge(item.weight()));
    if (SameObject(item, *bound[0]) || Equal(item, *bound[0])) ++count;
  }
  return Value::Int(count);
}

}  // namespace

MethodSupport FindMethod(const Value& self, std::string_view name) {
  const MethodList& methods = MethodsOf(self.kind());
  const auto has = [&](const std::vector<std::string_view>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (has(methods.supported)) return MethodSupport::kSupported;
  if (has(methods.changing)) return MethodSupport::kChanges;
  return has(methods.unsupported) ? MethodSupport::kUnsupported : MethodSupport::kNone;
}

absl::StatusOr<Value> CallMethod(Interpreter& interpreter, const MethodObject& method,
                                 CallArguments arguments) {
  switch (method.self.kind()) {
    case Kind::kString:
      return CallStringMethod(interpreter, method.self, method.name, std::move(arguments));
    case Kind::kLoop:
      return LoopMethod(interpreter, method.self.As<LoopObject>(), method.name,
                        std::move(arguments));
    case Kind::kCycler:
      return CyclerMethod(method.self.As<CyclerObject>(), method.name, std::move(arguments));
    default:
      return CallContainerMethod(interpreter, method.self, method.name, std::move(arguments));
  }
}

absl::StatusOr<Value> CallContainerMethod(Interpreter& interpreter, const Value& self,
                                          std::string_view name, CallArguments arguments) {
  if (self.is_dict()) return DictMethod(interpreter, self, name, std::move(arguments));
  return SequenceMethod(interpreter, self, name, std::move(arguments));
}

}  // namespace penstock::jinja
