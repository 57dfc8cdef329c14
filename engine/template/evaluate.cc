// Expressions.
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/filters.h"
#include "engine/template/interpreter.h"
#include "engine/template/methods.h"
#include "engine/template/operators.h"
#include "engine/template/print.h"
#include "engine/template/tests.h"
#include "engine/template/text.h"

namespace penstock::jinja {

absl::Status Interpreter::TooDeep() const {
  return Error(absl::StatusCode::kResourceExhausted, reason::kDataInvalid,
               absl::StrCat("the template nests calls and expressions deeper than ",
                            limits_.max_depth, " levels; does a macro call itself without end?"));
}

absl::StatusOr<Value> Interpreter::Evaluate(const Expression& expression) {
  const Depth depth(this);
  absl::Status status = depth.ok() ? Charge(1) : TooDeep();
  if (status.ok()) {
    absl::StatusOr<Value> value = EvaluateNode(expression);
    if (value.ok()) return value;
    status = value.status();
  }
  if (error_line_ == 0) error_line_ = expression.line;
  return status;
}

absl::StatusOr<Value> Interpreter::EvaluateNode(const Expression& expression) {
  switch (expression.kind) {
    case ExpressionKind::kConstant:
      return static_cast<const ConstantExpression&>(expression).value;
    case ExpressionKind::kName:
      return EvaluateName(static_cast<const NameExpression&>(expression));
    case ExpressionKind::kTuple:
    case ExpressionKind::kList:
    case ExpressionKind::kDict:
      return EvaluateItems(static_cast<const ItemsExpression&>(expression));
    case ExpressionKind::kUnary:
      return EvaluateUnary(static_cast<const UnaryExpression&>(expression));
    case ExpressionKind::kBinary: {
      const auto& node = static_cast<const BinaryExpression&>(expression);
      PENSTOCK_ASSIGN_OR_RETURN(const Value left, Evaluate(*node.left));
      PENSTOCK_ASSIGN_OR_RETURN(const Value right, Evaluate(*node.right));
      return Arithmetic(*this, node.op, left, right);
    }
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr:
      return EvaluateLogic(static_cast<const BinaryExpression&>(expression));
    case ExpressionKind::kConcat:
      return EvaluateConcat(static_cast<const ItemsExpression&>(expression));
    case ExpressionKind::kCompare:
      return EvaluateCompare(static_cast<const CompareExpression&>(expression));
    case ExpressionKind::kAttribute: {
      const auto& node = static_cast<const AttributeExpression&>(expression);
      PENSTOCK_ASSIGN_OR_RETURN(const Value object, Evaluate(*node.object));
      return GetAttribute(*this, object, node.name);
    }
    case ExpressionKind::kItem:
      return EvaluateItem(static_cast<const ItemExpression&>(expression));
    case ExpressionKind::kSlice:
      return Failure("a slice stands where none can");
    case ExpressionKind::kCall:
      return EvaluateCall(static_cast<const CallExpression&>(expression), nullptr);
    case ExpressionKind::kFilter:
      return EvaluateFilter(static_cast<const FilterExpression&>(expression));
    case ExpressionKind::kTest:
      return EvaluateTest(static_cast<const TestExpression&>(expression));
    case ExpressionKind::kConditional:
      return EvaluateConditional(static_cast<const ConditionalExpression&>(expression));
  }
  return Failure("unknown expression");
}

absl::StatusOr<Value> Interpreter::EvaluateName(const NameExpression& node) {
  const Value& value = Variable(node.variable);
  if (!value.is_missing()) return value;
  return NewUndefined(absl::StrCat("'", node.name, "' is undefined"));
}

absl::StatusOr<Value> Interpreter::EvaluateItems(const ItemsExpression& node) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const ExpressionPtr& item : node.items) {
    PENSTOCK_ASSIGN_OR_RETURN(Value value, Evaluate(*item));
    items.push_back(std::move(value));
  }
  if (node.kind == ExpressionKind::kList) return NewList(std::move(items));
  if (node.kind == ExpressionKind::kTuple) return NewTuple(std::move(items));
  std::vector<DictItem> pairs;
  pairs.reserve(items.size() / 2);
  for (size_t i = 0; i < items.size(); i += 2) {
    pairs.emplace_back(std::move(items[i]), std::move(items[i + 1]));
  }
  return NewDict(std::move(pairs));
}

absl::StatusOr<Value> Interpreter::EvaluateUnary(const UnaryExpression& node) {
  PENSTOCK_ASSIGN_OR_RETURN(const Value operand, Evaluate(*node.operand));
  if (node.op != Operator::kNot) return Sign(node.op, operand);
  PENSTOCK_ASSIGN_OR_RETURN(const bool truth, Truth(operand));
  return Value::Bool(!truth);
}

absl::StatusOr<Value> Interpreter::EvaluateLogic(const BinaryExpression& node) {
  PENSTOCK_ASSIGN_OR_RETURN(Value left, Evaluate(*node.left));
  PENSTOCK_ASSIGN_OR_RETURN(const bool truth, Truth(left));
  if (truth == (node.kind == ExpressionKind::kOr)) return left;
  return Evaluate(*node.right);
}

absl::StatusOr<Value> Interpreter::EvaluateCompare(const CompareExpression& node) {
  PENSTOCK_ASSIGN_OR_RETURN(Value left, Evaluate(*node.first));
  bool result = true;
  for (const auto& [op, operand] : node.rest) {
    PENSTOCK_ASSIGN_OR_RETURN(Value right, Evaluate(*operand));
    PENSTOCK_ASSIGN_OR_RETURN(result, Compare(*this, op, left, right));
    if (!result) break;
    left = std::move(right);
  }
  return Value::Bool(result);
}

absl::StatusOr<Value> Interpreter::EvaluateConcat(const ItemsExpression& node) {
  std::vector<Value> values;
  values.reserve(node.items.size());
  for (const ExpressionPtr& item : node.items) {
    PENSTOCK_ASSIGN_OR_RETURN(Value value, Evaluate(*item));
    values.push_back(std::move(value));
  }
  std::string text;
  for (const Value& value : values) {
    PENSTOCK_RETURN_IF_ERROR(AppendText(*this, value, &text));
    PENSTOCK_RETURN_IF_ERROR(CheckBytes(static_cast<int64_t>(text.size())));
  }
  return NewString(std::move(text));
}

absl::StatusOr<Value> Interpreter::EvaluateItem(const ItemExpression& node) {
  PENSTOCK_ASSIGN_OR_RETURN(const Value object, Evaluate(*node.object));
  if (node.index->kind == ExpressionKind::kSlice) {
    return EvaluateSlice(object, static_cast<const SliceExpression&>(*node.index));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Value index, Evaluate(*node.index));
  return GetItem(*this, object, index);
}

absl::StatusOr<Value> Interpreter::EvaluateSlice(const Value& object,
                                                 const SliceExpression& slice) {
  Value parts[3];
  const ExpressionPtr* expressions[3] = {&slice.start, &slice.stop, &slice.step};
  for (int i = 0; i < 3; ++i) {
    if (*expressions[i] == nullptr) continue;
    PENSTOCK_ASSIGN_OR_RETURN(parts[i], Evaluate(**expressions[i]));
  }
  return GetSlice(*this, object, parts[0], parts[1], parts[2]);
}

absl::StatusOr<CallArguments> Interpreter::EvaluateArguments(const ArgumentsSyntax& syntax) {
  CallArguments arguments;
  for (const ExpressionPtr& argument : syntax.positional) {
    PENSTOCK_ASSIGN_OR_RETURN(Value value, Evaluate(*argument));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, argument] : syntax.named) {
    PENSTOCK_ASSIGN_OR_RETURN(Value value, Evaluate(*argument));
    arguments.named.emplace_back(name, std::move(value));
  }
  if (syntax.more_positional != nullptr) {
    PENSTOCK_ASSIGN_OR_RETURN(const Value more, Evaluate(*syntax.more_positional));
    PENSTOCK_ASSIGN_OR_RETURN(std::vector<Value> values, ToVector(more));
    for (Value& value : values) arguments.positional.push_back(std::move(value));
  }
  if (syntax.more_named == nullptr) return arguments;
  PENSTOCK_ASSIGN_OR_RETURN(const Value more, Evaluate(*syntax.more_named));
  if (!more.is_dict()) return TypeFailure(more, "cannot be given as **arguments");
  const size_t written = arguments.named.size();
  PENSTOCK_RETURN_IF_ERROR(Charge(static_cast<int64_t>(more.dict().size() * (1 + written / 16))));
  for (const auto& [key, value] : more.dict()) {
    if (!key.is_string()) return Failure("the keys of **arguments must be strings");
    for (size_t i = 0; i < written; ++i) {
      if (arguments.named[i].first != key.string()) continue;
      return Failure(absl::StrCat("the argument ", key.string(), " is given twice"));
    }
    arguments.named.emplace_back(key.string(), value);
  }
  return arguments;
}

absl::StatusOr<Value> Interpreter::EvaluateCall(const CallExpression& node, const Value* caller) {
  PENSTOCK_ASSIGN_OR_RETURN(const Value callee, Evaluate(*node.callee));
  PENSTOCK_ASSIGN_OR_RETURN(CallArguments arguments, EvaluateArguments(node.arguments));
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  return Call(callee, std::move(arguments));
}

absl::StatusOr<Value> Interpreter::EvaluateFilter(const FilterExpression& node) {
  Value operand;
  if (node.operand != nullptr) {
    PENSTOCK_ASSIGN_OR_RETURN(operand, Evaluate(*node.operand));
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(operand, NewString(*block_text_));
  }
  PENSTOCK_ASSIGN_OR_RETURN(CallArguments arguments, EvaluateArguments(node.arguments));
  if (node.filter == nullptr) {
    return Failure(absl::StrCat("the filter ", node.name, " does not exist here"));
  }
  return node.filter->apply(*this, operand, std::move(arguments));
}

absl::StatusOr<Value> Interpreter::EvaluateTest(const TestExpression& node) {
  PENSTOCK_ASSIGN_OR_RETURN(const Value operand, Evaluate(*node.operand));
  PENSTOCK_ASSIGN_OR_RETURN(CallArguments arguments, EvaluateArguments(node.arguments));
  if (node.test == nullptr) {
    return Failure(absl::StrCat("the test ", node.name, " does not exist here"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const bool result,
                            node.test->apply(*this, operand, std::move(arguments)));
  return Value::Bool(result);
}

absl::StatusOr<Value> Interpreter::EvaluateConditional(const ConditionalExpression& node) {
  PENSTOCK_ASSIGN_OR_RETURN(const Value condition, Evaluate(*node.condition));
  PENSTOCK_ASSIGN_OR_RETURN(const bool truth, Truth(condition));
  if (truth) return Evaluate(*node.then);
  if (node.otherwise != nullptr) return Evaluate(*node.otherwise);
  return NewUndefined("an inline `if` without `else` was false");
}

// ---- Calls -------------------------------------------------------------------------------------

absl::StatusOr<Value> Interpreter::Call(const Value& callee, CallArguments arguments) {
  const Depth depth(this);
  if (!depth.ok()) return TooDeep();
  PENSTOCK_RETURN_IF_ERROR(Charge(1));
  switch (callee.kind()) {
    case Kind::kFunction:
      return callee.As<FunctionObject>().call(*this, std::move(arguments));
    case Kind::kMethod:
      return CallMethod(*this, callee.As<MethodObject>(), std::move(arguments));
    case Kind::kMacro:
      return CallMacro(callee.As<MacroObject>(), std::move(arguments));
    case Kind::kLoop: {
      const auto& loop = callee.As<LoopObject>();
      PENSTOCK_ASSIGN_OR_RETURN(auto bound,
                                BindArguments("loop", std::move(arguments), {"iterable"}, 1));
      if (loop.recursive == nullptr) {
        return Failure("only a loop marked `recursive` can be called");
      }
      return RunRecursiveLoop(*loop.recursive, *bound[0], loop.closure, loop.depth0 + 1);
    }
    case Kind::kJoiner: {
      PENSTOCK_RETURN_IF_ERROR(BindArguments("joiner", std::move(arguments), {}).status());
      auto& joiner = callee.As<JoinerObject>();
      return std::exchange(joiner.used, true) ? joiner.separator : Value::String("");
    }
    default:
      return TypeFailure(callee, "cannot be called");
  }
}

absl::StatusOr<Value> Interpreter::CallFilter(std::string_view name, const Value& value,
                                              CallArguments arguments) {
  const FilterEntry* filter = FindFilter(name);
  if (filter == nullptr) {
    return Failure(absl::StrCat("the filter ", Absl(name), " does not exist here"));
  }
  PENSTOCK_RETURN_IF_ERROR(Charge(1));
  return filter->apply(*this, value, std::move(arguments));
}

absl::StatusOr<bool> Interpreter::CallTest(std::string_view name, const Value& value,
                                           CallArguments arguments) {
  const TestEntry* test = FindTest(name);
  if (test == nullptr) {
    return Failure(absl::StrCat("the test ", Absl(name), " does not exist here"));
  }
  PENSTOCK_RETURN_IF_ERROR(Charge(1));
  return test->apply(*this, value, std::move(arguments));
}

Value Interpreter::NewMacro(const MacroDefinition& definition) {
  auto object = std::make_shared<MacroObject>();
  object->definition = &definition;
  object->closure = activation_;
  Capture(activation_);
  return Value::FromObject(Kind::kMacro, std::move(object));
}

// Fills the slots of the parameters, in jinja2's order: by position, then by name; then caller,
// kwargs and varargs take what is left, if the macro looks at them.
absl::Status Interpreter::BindParameters(const MacroDefinition& macro, CallArguments* arguments,
                                         std::vector<Value>* slots) {
  const auto take_named = [&](std::string_view name) {
    for (auto at = arguments->named.begin(); at != arguments->named.end(); ++at) {
      if (at->first != name) continue;
      Value value = std::move(at->second);
      arguments->named.erase(at);
      return value;
    }
    return Value::Missing();
  };
  const std::string name = macro.name.empty() ? "the caller" : "the macro " + macro.name;
  const size_t count = macro.parameters.size();
  const size_t given = std::min(count, arguments->positional.size());
  PENSTOCK_RETURN_IF_ERROR(
      Charge(static_cast<int64_t>((count - given) * arguments->named.size() / 16)));
  for (size_t i = 0; i < count; ++i) {
    Value& slot = (*slots)[static_cast<size_t>(macro.parameters[i].slot)];
    slot = i < given ? arguments->positional[i] : take_named(macro.parameters[i].name);
  }
  if (macro.caller_slot >= 0) {
    Value caller = take_named("caller");
    if (caller.is_missing() || caller.is_none()) caller = NewUndefined("No caller defined");
    (*slots)[static_cast<size_t>(macro.caller_slot)] = std::move(caller);
  }
  if (macro.kwargs_slot >= 0) {
    PENSTOCK_ASSIGN_OR_RETURN((*slots)[static_cast<size_t>(macro.kwargs_slot)],
                              Checked(Value::Dict(std::move(arguments->named))));
  } else if (!arguments->named.empty()) {
    return Failure(absl::StrCat(name, " has no argument called ", arguments->named[0].first));
  }
  std::vector<Value> rest(arguments->positional.begin() + static_cast<ptrdiff_t>(given),
                          arguments->positional.end());
  if (macro.varargs_slot >= 0) {
    PENSTOCK_ASSIGN_OR_RETURN((*slots)[static_cast<size_t>(macro.varargs_slot)],
                              NewTuple(std::move(rest)));
  } else if (!rest.empty()) {
    return Failure(absl::StrCat(name, " takes at most ", count, " arguments, not ",
                                arguments->positional.size()));
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> Interpreter::CallMacro(const MacroObject& macro, CallArguments arguments) {
  const MacroDefinition& definition = *macro.definition;
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Activation> activation,
                            NewActivation(definition.frame_slots, macro.closure));
  std::string text;
  absl::Status status = BindParameters(definition, &arguments, &activation->slots);
  if (status.ok()) {
    const Enter enter(this, activation.get());
    status = EnterScope(definition.scope);
    for (const MacroDefinition::Parameter& parameter : definition.parameters) {
      if (!status.ok()) break;
      const size_t slot = static_cast<size_t>(parameter.slot);
      if (!activation->slots[slot].is_missing()) continue;
      if (parameter.default_value == nullptr) {
        activation->slots[slot] =
            NewUndefined(absl::StrCat("parameter '", parameter.name, "' was not provided"));
        continue;
      }
      absl::StatusOr<Value> value = Evaluate(*parameter.default_value);
      status = value.status();
      if (status.ok()) activation->slots[slot] = *std::move(value);
    }
    if (status.ok()) status = Captured(definition.body, &text).status();
  }
  EndActivation(std::move(activation));
  PENSTOCK_RETURN_IF_ERROR(status);
  return NewString(std::move(text));
}

}  // namespace penstock::jinja
