#include "engine/template/globals.h"

#include <ctime>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/interpreter.h"
#include "engine/template/operators.h"
#include "engine/template/text.h"

namespace penstock::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // jinja2's sandbox has the same limit

absl::StatusOr<Value> Range(Interpreter& interpreter, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound,
                            BindArguments("range", std::move(arguments), {"", "", ""}, 1));
  for (const std::optional<Value>& number : bound) {
    if (!number.has_value()) continue;
    if (!number->is_integral()) return TypeFailure(*number, "cannot be a bound of a range");
    if (number->integer() > kMaxRangeNumber || number->integer() < -kMaxRangeNumber) {
      return Failure("a bound of a range is too large");
    }
  }
  auto range = std::make_shared<RangeObject>();
  range->stop = bound[0]->integer();
  if (bound[1].has_value()) {
    range->start = range->stop;
    range->stop = bound[1]->integer();
  }
  if (bound[2].has_value()) range->step = bound[2]->integer();
  if (range->step == 0) return Failure("the step of a range is 0");
  if (range->size() > kMaxRange) {
    return Failure(absl::StrCat("a range of ", range->size(), " numbers is too large; at most ",
                                kMaxRange, " are allowed"));
  }
  return interpreter.Checked(Value::FromObject(Kind::kRange, std::move(range)));
}

// The items of dict(...) and namespace(...): of a dict or of pairs, then those with names.
absl::StatusOr<std::vector<DictItem>> ItemsOf(Interpreter& interpreter, std::string_view function,
                                              CallArguments arguments) {
  std::vector<DictItem> items;
  if (arguments.positional.size() > 1) {
    return Failure(absl::StrCat(Absl(function), " takes at most 1 argument without a name"));
  }
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is_undefined()) return TypeFailure(source, "");
    if (source.is_dict()) {
      items = source.dict();
    } else {
      PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Value> pairs, interpreter.ToVector(source));
      for (const Value& pair : pairs) {
        PENSTOCK_ASSIGN_OR_RETURN(std::vector<Value> parts, interpreter.ToVector(pair));
        if (parts.size() != 2) {
          return Failure(
              absl::StrCat(Absl(function), " needs pairs, not ", parts.size(), " values"));
        }
        items.emplace_back(std::move(parts[0]), std::move(parts[1]));
      }
    }
  }
  for (auto& [name, value] : arguments.named) {
    items.emplace_back(Value::String(name), std::move(value));
  }
  return items;
}

absl::StatusOr<Value> MakeDict(Interpreter& interpreter, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<DictItem> items,
                            ItemsOf(interpreter, "dict", std::move(arguments)));
  return interpreter.NewDict(std::move(items));
}

absl::StatusOr<Value> MakeNamespace(Interpreter& interpreter, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<DictItem> items,
                            ItemsOf(interpreter, "namespace", std::move(arguments)));
  PENSTOCK_ASSIGN_OR_RETURN(const Value dict, interpreter.NewDict(std::move(items)));
  std::vector<std::pair<std::string, Value>> attributes;
  for (const auto& [key, value] : dict.dict()) {
    if (!key.is_string()) return TypeFailure(key, "cannot be the name of an attribute");
    attributes.emplace_back(key.string(), value);
  }
  return interpreter.NewNamespace(std::move(attributes));
}

absl::StatusOr<Value> MakeCycler(Interpreter& interpreter, CallArguments arguments) {
  if (!arguments.named.empty()) return Failure("cycler takes no arguments with names");
  if (arguments.positional.empty()) return Failure("cycler needs items");
  auto cycler = std::make_shared<CyclerObject>();
  for (const Value& item : arguments.positional) AddPart(item, cycler.get());
  cycler->items = std::move(arguments.positional);
  return interpreter.Checked(Value::FromObject(Kind::kCycler, std::move(cycler)));
}

absl::StatusOr<Value> MakeJoiner(Interpreter& interpreter, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound, BindArguments("joiner", std::move(arguments), {"sep"}));
  auto joiner = std::make_shared<JoinerObject>();
  joiner->separator = bound[0].value_or(Value::String(", "));
  AddPart(joiner->separator, joiner.get());
  return interpreter.Checked(Value::FromObject(Kind::kJoiner, std::move(joiner)));
}

// How templates refuse a conversation.
absl::StatusOr<Value> RaiseException(Interpreter& interpreter, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound,
                            BindArguments("raise_exception", std::move(arguments), {"message"}, 1));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string message, interpreter.ToText(*bound[0]));
  return Failure(absl::StrCat("the template refuses the conversation: ", message));
}

absl::StatusOr<Value> StrftimeNow(Interpreter& interpreter, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(auto bound,
                            BindArguments("strftime_now", std::move(arguments), {"format"}, 1));
  if (!bound[0]->is_string()) return TypeFailure(*bound[0], "is no format of a date");
  const std::string& format = bound[0]->string();
  // A width, as in %999999d, would make a long text of a short format.
  if (format.size() > 200 || format.find('\0') != std::string::npos) {
    return Failure("the format of strftime_now is too long or has a null character");
  }
  const time_t now = static_cast<time_t>(interpreter.now_unix_seconds());
  std::tm parts = {};
  if (gmtime_r(&now, &parts) == nullptr) return Failure("the time of strftime_now is out of range");
  char text[4096];
  // 0 also stands for an empty result, so a space goes along.
  const size_t size = std::strftime(text, sizeof(text), (" " + format).c_str(), &parts);
  if (size == 0) return Failure("strftime_now makes too long a text");
  return interpreter.NewString(std::string(text + 1, size - 1));
}

Value MakeFunction(std::string_view name, FunctionObject::Call call) {
  auto function = std::make_shared<FunctionObject>();
  function->name = name;
  function->call = call;
  return Value::FromObject(Kind::kFunction, std::move(function));
}

}  // namespace

const Value* FindGlobal(std::string_view name) {
  // Never destroyed: templates may run while the process ends.
  static const auto* const globals = new std::map<std::string_view, Value>{
      {"cycler", MakeFunction("cycler", MakeCycler)},
      {"dict", MakeFunction("dict", MakeDict)},
      {"joiner", MakeFunction("joiner", MakeJoiner)},
      {"namespace", MakeFunction("namespace", MakeNamespace)},
      {"raise_exception", MakeFunction("raise_exception", RaiseException)},
      {"range", MakeFunction("range", Range)},
      {"strftime_now", MakeFunction("strftime_now", StrftimeNow)},
  };
  const auto found = globals->find(name);
  return found == globals->end() ? nullptr : &found->second;
}

}  // namespace penstock::jinja
