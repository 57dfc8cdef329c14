#include "engine/template/interpreter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/globals.h"
#include "engine/template/operators.h"
#include "engine/template/print.h"
#include "engine/template/text.h"

namespace penstock::jinja {
namespace {

absl::Status LimitReached(std::string_view message) {
  return Error(absl::StatusCode::kResourceExhausted, reason::kDataInvalid, message);
}

}  // namespace

absl::Status Failure(std::string_view message) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid, message);
}

Interpreter::Interpreter(const Syntax& syntax, const RenderInput& input, const Limits& limits)
    : syntax_(syntax), input_(input), limits_(limits) {
  for (const auto& [name, value] : input.variables) {
    variables_[name] = &value;
    if (name != "messages" || !value.is_sequence()) continue;
    for (size_t i = 0; i < value.list().size(); ++i) {
      const Object* message = value.list()[i].object();
      if (message != nullptr) message_indices_.try_emplace(message, static_cast<int64_t>(i));
    }
  }
}

Interpreter::~Interpreter() {
  // What is left in namespaces and kept activations may be a circle, or a long chain whose
  // destructors would call each other. One by one, nothing is deeper than a value may be.
  for (const auto& space : namespaces_) {
    const auto attributes = std::move(space->attributes);
    space->attributes.clear();
  }
  for (const auto& activation : kept_) activation->slots.clear();
}

absl::StatusOr<Rendering> Interpreter::Run() {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Activation> root,
                            NewActivation(syntax_.frame_slots, nullptr));
  absl::StatusOr<Flow> flow = Flow::kOn;
  {
    const Enter enter(this, root.get());
    const absl::Status status = EnterScope(syntax_.scope);
    flow = status.ok() ? Execute(syntax_.body) : status;
  }
  EndActivation(std::move(root));
  if (!flow.ok()) {
    return Annotate(flow.status(), absl::StrCat("line ", error_line_));
  }
  rendering_.text = std::move(output_);
  return std::move(rendering_);
}

absl::Status Interpreter::Charge(int64_t steps) {
  steps_ += steps;
  if (steps_ <= limits_.max_steps) return absl::OkStatus();
  return LimitReached(absl::StrCat("the template does more than ", limits_.max_steps,
                                   " steps of work; does it loop without end?"));
}

absl::Status Interpreter::CheckBytes(int64_t bytes) const {
  if (bytes <= limits_.max_value_bytes) return absl::OkStatus();
  return LimitReached(absl::StrCat("the template makes a string of ", bytes,
                                   " bytes; the limit is ", limits_.max_value_bytes));
}

absl::Status Interpreter::CheckItems(int64_t items) const {
  if (items <= limits_.max_value_bytes / 16) return absl::OkStatus();
  return LimitReached(absl::StrCat("the template makes a list of ", items, " items; the limit is ",
                                   limits_.max_value_bytes / 16));
}

absl::StatusOr<Value> Interpreter::Checked(Value value) {
  int64_t bytes = 64;
  if (value.is_string()) {
    bytes += static_cast<int64_t>(value.string().size());
    PENSTOCK_RETURN_IF_ERROR(CheckBytes(bytes));
  } else if (value.is_sequence()) {
    bytes += 32 * static_cast<int64_t>(value.list().size());
  } else if (value.is_dict()) {
    bytes += 80 * static_cast<int64_t>(value.dict().size());
  }
  if (value.nesting() > limits_.max_value_depth) {
    return LimitReached(
        absl::StrCat("the template nests values deeper than ", limits_.max_value_depth, " levels"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckItems(value.is_string() ? 0 : value.weight()));
  PENSTOCK_RETURN_IF_ERROR(CountBytes(bytes));
  return value;
}

absl::Status Interpreter::CountBytes(int64_t bytes) {
  total_bytes_ += bytes;
  if (total_bytes_ <= limits_.max_total_bytes) return ChargeBytes(bytes);
  return LimitReached(
      absl::StrCat("the template makes more than ", limits_.max_total_bytes, " bytes of values"));
}

absl::StatusOr<Value> Interpreter::NewStringLike(const Value& model, std::string text) {
  return Checked(model.is_string() && model.is_markup() ? Value::Markup(std::move(text))
                                                        : Value::String(std::move(text)));
}

absl::StatusOr<Value> Interpreter::NewList(std::vector<Value> items) {
  return Checked(Value::List(std::move(items)));
}

absl::StatusOr<Value> Interpreter::NewTuple(std::vector<Value> items) {
  return Checked(Value::Tuple(std::move(items)));
}

absl::StatusOr<Value> Interpreter::NewDict(std::vector<DictItem> items) {
  for (const auto& [key, value] : items) {
    if (!IsHashable(key)) {
      return Failure(absl::StrCat("a ", Absl(TypeName(key)), " cannot be the key of a dict"));
    }
  }
  return Checked(Value::Dict(std::move(items)));
}

absl::StatusOr<Value> Interpreter::NewNamespace(
    std::vector<std::pair<std::string, Value>> attributes) {
  auto object = std::make_shared<NamespaceObject>();
  object->attributes = std::move(attributes);
  namespaces_.push_back(object);
  return Checked(Value::FromObject(Kind::kNamespace, std::move(object)));
}

absl::StatusOr<Value> Interpreter::NewGenerator(std::string_view name,
                                                std::unique_ptr<Iterator> iterator,
                                                const Value& source,
                                                const CallArguments* arguments) {
  auto object = std::make_shared<GeneratorObject>();
  object->name = name;
  object->iterator = std::move(iterator);
  AddPart(source, object.get());
  if (arguments != nullptr) {
    for (const Value& argument : arguments->positional) AddPart(argument, object.get());
    for (const auto& [key, argument] : arguments->named) AddPart(argument, object.get());
  }
  return Checked(Value::FromObject(Kind::kGenerator, std::move(object)));
}

Value Interpreter::NewUndefined(std::string message) {
  auto object = std::make_shared<UndefinedObject>();
  object->message = std::move(message);
  return Value::FromObject(Kind::kUndefined, std::move(object));
}

absl::StatusOr<bool> Interpreter::Truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.number() != 0;
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kDictView:
    case Kind::kLoop: {
      PENSTOCK_ASSIGN_OR_RETURN(const int64_t length, Length(value));
      return length != 0;
    }
    default:
      return true;
  }
}

absl::StatusOr<int64_t> Interpreter::Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return value.string_length();
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.list().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().size());
    case Kind::kRange:
      return value.As<RangeObject>().size();
    case Kind::kDictView:
      return static_cast<int64_t>(value.As<DictViewObject>().dict.dict().size());
    case Kind::kLoop:
      return LoopLength(value.As<LoopObject>());
    default:
      return TypeFailure(value, "has no length");
  }
}

absl::StatusOr<std::string> Interpreter::ToText(const Value& value) {
  std::string text;
  PENSTOCK_RETURN_IF_ERROR(AppendText(*this, value, &text));
  return text;
}

// ---- Activations ------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<Activation>> Interpreter::NewActivation(int slots,
                                                                       Activation* parent) {
  PENSTOCK_RETURN_IF_ERROR(CountBytes(slots * static_cast<int64_t>(sizeof(Value))));
  auto activation = std::make_unique<Activation>();
  activation->slots.assign(static_cast<size_t>(slots), Value::Missing());
  activation->parent = parent;
  return activation;
}

void Interpreter::EndActivation(std::unique_ptr<Activation> activation) {
  if (activation->captured) kept_.push_back(std::move(activation));
}

void Interpreter::Capture(Activation* activation) {
  for (; activation != nullptr && !activation->captured; activation = activation->parent) {
    activation->captured = true;
  }
}

Value& Interpreter::Variable(const VariableRef& ref) {
  Activation* activation = activation_;
  for (int i = 0; i < ref.hops; ++i) activation = activation->parent;
  return activation->slots[static_cast<size_t>(ref.slot)];
}

absl::Status Interpreter::EnterScope(const Scope& scope) {
  PENSTOCK_RETURN_IF_ERROR(Charge(static_cast<int64_t>(scope.slots.size())));
  for (const VariableStart& start : scope.starts) {
    Value& variable = activation_->slots[static_cast<size_t>(start.slot)];
    switch (start.kind) {
      case VariableStart::Kind::kNothing:
        variable = Value::Missing();
        break;
      case VariableStart::Kind::kCopy:
        variable = Variable(start.outer);
        break;
      case VariableStart::Kind::kContext: {
        const auto found = variables_.find(start.name);
        const Value* value = found != variables_.end() ? found->second : FindGlobal(start.name);
        variable = value != nullptr ? *value : Value::Missing();
        break;
      }
    }
  }
  return absl::OkStatus();
}

void Interpreter::LeaveScope(const Scope& scope) {
  for (const int slot : scope.slots) {
    activation_->slots[static_cast<size_t>(slot)] = Value::Missing();
  }
}

// ---- Arguments --------------------------------------------------------------------------------

absl::StatusOr<std::vector<std::optional<Value>>> BindArguments(
    std::string_view function, CallArguments arguments,
    std::initializer_list<std::string_view> names, size_t required) {
  std::vector<std::optional<Value>> bound(names.size());
  if (arguments.positional.size() > names.size()) {
    return Failure(absl::StrCat(Absl(function), " takes at most ", names.size(), " arguments, not ",
                                arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    bound[i] = std::move(arguments.positional[i]);
  }
  for (auto& [name, value] : arguments.named) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end() || name.empty()) {
      return Failure(absl::StrCat(Absl(function), " has no argument called ", name));
    }
    std::optional<Value>& slot = bound[static_cast<size_t>(at - names.begin())];
    if (slot.has_value()) {
      return Failure(absl::StrCat(Absl(function), " is given its argument ", name, " twice"));
    }
    slot = std::move(value);
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i].has_value()) continue;
    return Failure(absl::StrCat(Absl(function), " needs ", required, " arguments"));
  }
  return bound;
}

}  // namespace penstock::jinja
