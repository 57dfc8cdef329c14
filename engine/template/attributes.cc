// object.name, object[key] and slices, as jinja2's immutable sandbox allows them.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/ast.h"
#include "engine/template/interpreter.h"
#include "engine/template/methods.h"
#include "engine/template/objects.h"
#include "engine/template/operators.h"
#include "engine/template/text.h"

namespace penstock::jinja {
namespace {

using MaybeValue = absl::StatusOr<std::optional<Value>>;

Value MakeMethod(const Value& self, std::string_view name) {
  auto method = std::make_shared<MethodObject>();
  AddPart(self, method.get());
  method->self = self;
  method->name = name;
  return Value::FromObject(Kind::kMethod, std::move(method));
}

MaybeValue LoopAttribute(Interpreter& interpreter, const Value& value, std::string_view name) {
  auto& loop = value.As<LoopObject>();
  if (name == "index") return Value::Int(loop.index0 + 1);
  if (name == "index0") return Value::Int(loop.index0);
  if (name == "first") return Value::Bool(loop.index0 == 0);
  if (name == "depth") return Value::Int(loop.depth0 + 1);
  if (name == "depth0") return Value::Int(loop.depth0);
  if (name == "length" || name == "revindex" || name == "revindex0") {
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t length, interpreter.LoopLength(loop));
    if (name == "length") return Value::Int(length);
    return Value::Int(length - loop.index0 - (name == "revindex0" ? 1 : 0));
  }
  if (name == "last" || name == "nextitem") {
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<Value>* next, interpreter.LoopPeek(loop));
    if (name == "last") return Value::Bool(!next->has_value());
    if (next->has_value()) return **next;
    return Interpreter::NewUndefined("there is no next item");
  }
  if (name == "previtem") {
    if (loop.index0 > 0 && !loop.before.is_missing()) return loop.before;
    return Interpreter::NewUndefined("there is no previous item");
  }
  if (name == "cycle" || name == "changed") return MakeMethod(value, name);
  return std::nullopt;
}

MaybeValue MacroAttribute(Interpreter& interpreter, const Value& value, std::string_view name) {
  const MacroDefinition& macro = *value.As<MacroObject>().definition;
  if (name == "name") {
    return macro.name.empty() ? Value::None() : Value::String(macro.name);
  }
  if (name == "catch_kwargs") return Value::Bool(macro.kwargs_slot >= 0);
  if (name == "catch_varargs") return Value::Bool(macro.varargs_slot >= 0);
  if (name == "caller") return Value::Bool(macro.takes_caller);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> names;
  for (const MacroDefinition::Parameter& parameter : macro.parameters) {
    names.push_back(Value::String(parameter.name));
  }
  PENSTOCK_ASSIGN_OR_RETURN(Value arguments, interpreter.NewTuple(std::move(names)));
  return arguments;
}

// What Python's getattr finds, or nullopt.
MaybeValue FindAttribute(Interpreter& interpreter, const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kUndefined:
      return TypeFailure(object, "");
    case Kind::kNamespace: {
      auto& space = object.As<NamespaceObject>();
      PENSTOCK_RETURN_IF_ERROR(
          interpreter.Charge(static_cast<int64_t>(space.attributes.size()) / 16));
      const Value* found = space.Find(name);
      if (found == nullptr) return std::nullopt;
      return *found;
    }
    case Kind::kLoop:
      return LoopAttribute(interpreter, object, name);
    case Kind::kMacro:
      return MacroAttribute(interpreter, object, name);
    case Kind::kCycler: {
      const auto& cycler = object.As<CyclerObject>();
      if (name == "current") return cycler.items[cycler.position];
      if (name == "next" || name == "reset") return MakeMethod(object, name);
      return std::nullopt;
    }
    case Kind::kRange: {
      const auto& range = object.As<RangeObject>();
      if (name == "start") return Value::Int(range.start);
      if (name == "stop") return Value::Int(range.stop);
      if (name == "step") return Value::Int(range.step);
      break;
    }
    default:
      break;
  }
  switch (FindMethod(object, name)) {
    case MethodSupport::kNone:
      return std::nullopt;
    case MethodSupport::kSupported:
      return MakeMethod(object, name);
    case MethodSupport::kChanges:
      return Interpreter::NewUndefined(absl::StrCat("the method ", Absl(name), " of a ",
                                                    Absl(TypeName(object)),
                                                    " would change it, which is not allowed"));
    case MethodSupport::kUnsupported:
      break;
  }
  return Failure(absl::StrCat("the attribute ", Absl(name), " of a ", Absl(TypeName(object)),
                              " is not supported"));
}

// The index in a sequence of `length` that Python takes `key` for, or nullopt.
std::optional<int64_t> IndexIn(int64_t length, const Value& key) {
  if (!key.is_integral()) return std::nullopt;
  int64_t index = key.integer();
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::nullopt;
  return index;
}

// What object[key] finds, or nullopt.
MaybeValue FindItem(Interpreter& interpreter, const Value& object, const Value& key) {
  switch (object.kind()) {
    case Kind::kUndefined:
      return TypeFailure(object, "");
    case Kind::kDict: {
      if (!IsHashable(key)) return std::nullopt;
      PENSTOCK_RETURN_IF_ERROR(interpreter.Charge(key.weight()));
      const Value* found = object.Find(key);
      if (found == nullptr) return std::nullopt;
      return *found;
    }
    case Kind::kList:
    case Kind::kTuple: {
      const auto index = IndexIn(static_cast<int64_t>(object.list().size()), key);
      if (!index.has_value()) return std::nullopt;
      return object.list()[static_cast<size_t>(*index)];
    }
    case Kind::kString: {
      const auto index = IndexIn(object.string_length(), key);
      if (!index.has_value()) return std::nullopt;
      const std::string& text = object.string();
      const bool ascii = object.string_length() == static_cast<int64_t>(text.size());
      if (!ascii) PENSTOCK_RETURN_IF_ERROR(interpreter.Charge(object.weight()));
      const size_t at = ascii ? static_cast<size_t>(*index) : ByteOffset(text, *index);
      PENSTOCK_ASSIGN_OR_RETURN(
          Value item, interpreter.NewStringLike(object, text.substr(at, Utf8Length(text[at]))));
      return item;
    }
    case Kind::kRange: {
      const auto& range = object.As<RangeObject>();
      const auto index = IndexIn(range.size(), key);
      if (!index.has_value()) return std::nullopt;
      return Value::Int(range.start + *index * range.step);
    }
    default:
      return std::nullopt;
  }
}

Value Absent(const Value& object, const Value& key) {
  if (key.is_string()) {
    return Interpreter::NewUndefined(absl::StrCat("'", Absl(TypeName(object)),
                                                  " object' has no attribute '",
                                                  key.string().substr(0, 100), "'"));
  }
  return Interpreter::NewUndefined(
      absl::StrCat(Absl(TypeName(object)), " object has no element ",
                   key.is_integral() ? absl::StrCat(key.integer()) : std::string(TypeName(key))));
}

struct SliceBounds {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  int64_t count = 0;
};

// Python's slice.indices for a sequence of `length`.
absl::StatusOr<SliceBounds> BoundsOf(const Value& start, const Value& stop, const Value& step,
                                     int64_t length) {
  for (const Value* part : {&start, &stop, &step}) {
    if (part->is_none() || part->is_integral()) continue;
    return TypeFailure(*part, "cannot be part of a slice");
  }
  SliceBounds bounds;
  if (!step.is_none()) bounds.step = step.integer();
  if (bounds.step == 0) return Failure("the step of a slice is 0");
  const bool backward = bounds.step < 0;
  const int64_t low = backward ? -1 : 0;
  const int64_t high = backward ? length - 1 : length;
  const auto place = [&](const Value& part, int64_t missing) {
    if (part.is_none()) return missing;
    int64_t index = part.integer();
    if (index < 0) index = std::max(index, -length - 1) + length;
    return std::clamp(index, low, high);
  };
  bounds.start = place(start, backward ? high : low);
  bounds.stop = place(stop, backward ? low : high);
  RangeObject range;
  range.start = bounds.start;
  range.stop = bounds.stop;
  range.step = bounds.step;
  bounds.count = range.size();
  return bounds;
}

absl::StatusOr<Value> SliceString(Interpreter& interpreter, const Value& object,
                                  const SliceBounds& bounds) {
  const std::string& text = object.string();
  PENSTOCK_RETURN_IF_ERROR(interpreter.Charge(object.weight()));
  const bool ascii = object.string_length() == static_cast<int64_t>(text.size());
  if (bounds.step == 1) {
    const size_t begin = ascii ? static_cast<size_t>(bounds.start) : ByteOffset(text, bounds.start);
    const std::string_view rest = std::string_view(text).substr(std::min(begin, text.size()));
    const size_t size = ascii ? static_cast<size_t>(bounds.count) : ByteOffset(rest, bounds.count);
    return interpreter.NewStringLike(object, std::string(rest.substr(0, size)));
  }
  std::vector<size_t> offsets;  // of the code points, if they differ from bytes
  for (size_t at = 0; !ascii && at < text.size(); at += Utf8Length(text[at])) {
    offsets.push_back(at);
  }
  std::string out;
  for (int64_t i = 0; i < bounds.count; ++i) {
    const size_t index = static_cast<size_t>(bounds.start + i * bounds.step);
    const size_t at = ascii ? index : offsets[index];
    out.append(text, at, Utf8Length(text[at]));
  }
  return interpreter.NewStringLike(object, std::move(out));
}

absl::StatusOr<Value> SliceRange(Interpreter& interpreter, const RangeObject& range,
                                 const SliceBounds& bounds) {
  auto sliced = std::make_shared<RangeObject>();
  sliced->start = range.start + bounds.start * range.step;
  sliced->stop = range.start + bounds.stop * range.step;
  if (__builtin_mul_overflow(range.step, bounds.step, &sliced->step) ||
      std::abs(sliced->step) > kMaxRangeNumber) {
    return Failure("the step of a slice of a range is too large");
  }
  return interpreter.Checked(Value::FromObject(Kind::kRange, std::move(sliced)));
}

}  // namespace

absl::StatusOr<Value> GetAttribute(Interpreter& interpreter, const Value& object,
                                   std::string_view name) {
  PENSTOCK_ASSIGN_OR_RETURN(std::optional<Value> found, FindAttribute(interpreter, object, name));
  if (found.has_value()) return *std::move(found);
  if (object.is_dict()) {
    if (const Value* item = object.Find(name)) return *item;
  }
  return Absent(object, Value::String(std::string(name)));
}

absl::StatusOr<Value> GetItem(Interpreter& interpreter, const Value& object, const Value& key) {
  PENSTOCK_ASSIGN_OR_RETURN(std::optional<Value> found, FindItem(interpreter, object, key));
  if (!found.has_value() && key.is_string()) {
    PENSTOCK_ASSIGN_OR_RETURN(found, FindAttribute(interpreter, object, key.string()));
  }
  if (found.has_value()) return *std::move(found);
  return Absent(object, key);
}

absl::StatusOr<Value> GetSlice(Interpreter& interpreter, const Value& object, const Value& start,
                               const Value& stop, const Value& step) {
  if (!object.is_string() && !object.is_sequence() && !object.is(Kind::kRange)) {
    return TypeFailure(object, "cannot be sliced");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t length, interpreter.Length(object));
  PENSTOCK_ASSIGN_OR_RETURN(const SliceBounds bounds, BoundsOf(start, stop, step, length));
  if (object.is_string()) return SliceString(interpreter, object, bounds);
  if (object.is(Kind::kRange)) return SliceRange(interpreter, object.As<RangeObject>(), bounds);
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(bounds.count));
  for (int64_t i = 0; i < bounds.count; ++i) {
    items.push_back(object.list()[static_cast<size_t>(bounds.start + i * bounds.step)]);
  }
  return object.is_list() ? interpreter.NewList(std::move(items))
                          : interpreter.NewTuple(std::move(items));
}

}  // namespace penstock::jinja
