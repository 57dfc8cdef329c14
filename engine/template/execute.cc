// Statements.
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/interpreter.h"
#include "engine/template/operators.h"
#include "engine/template/print.h"

namespace penstock::jinja {
namespace {

// The items that a loop's condition lets through. It runs ahead of the body when the body asks
// for the next item, so it has an activation of its own.
class ConditionIterator : public Iterator {
 public:
  ConditionIterator(const ForStatement& node, std::unique_ptr<Iterator> items,
                    std::unique_ptr<Activation> activation)
      : node_(node), items_(std::move(items)), activation_(std::move(activation)) {}

  absl::StatusOr<std::optional<Value>> Next(Interpreter& interpreter) override {
    // The condition may call a macro that asks this very loop for its next item.
    if (running_) return Failure("the condition of a loop asks for the loop's own items");
    running_ = true;
    absl::StatusOr<std::optional<Value>> item = NextWanted(interpreter);
    running_ = false;
    return item;
  }

 private:
  absl::StatusOr<std::optional<Value>> NextWanted(Interpreter& interpreter) {
    const Interpreter::Enter enter(&interpreter, activation_.get());
    if (!std::exchange(started_, true)) {
      PENSTOCK_RETURN_IF_ERROR(interpreter.EnterScope(node_.condition_scope));
    }
    while (true) {
      PENSTOCK_RETURN_IF_ERROR(interpreter.Charge(1));
      PENSTOCK_ASSIGN_OR_RETURN(std::optional<Value> item, items_->Next(interpreter));
      if (!item.has_value()) return std::nullopt;
      PENSTOCK_RETURN_IF_ERROR(interpreter.Assign(node_.condition_target, *item));
      PENSTOCK_ASSIGN_OR_RETURN(const Value condition, interpreter.Evaluate(*node_.condition));
      PENSTOCK_ASSIGN_OR_RETURN(const bool wanted, interpreter.Truth(condition));
      if (wanted) return item;
    }
  }

  const ForStatement& node_;
  const std::unique_ptr<Iterator> items_;
  const std::unique_ptr<Activation> activation_;
  bool started_ = false;
  bool running_ = false;
};

bool HasLength(const Value& value) { return !value.is(Kind::kGenerator) && !value.is(Kind::kLoop); }

// Forgets the items of a loop that is over, although a namespace may still hold the loop.
void Close(LoopObject* loop) {
  loop->iterator = nullptr;
  loop->after.reset();
  loop->changed.reset();
  loop->before = loop->current = Value::Missing();
}

}  // namespace

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const Block& block) {
  for (const StatementPtr& statement : block) {
    absl::StatusOr<Flow> flow = ExecuteStatement(*statement);
    if (!flow.ok() && error_line_ == 0) error_line_ = statement->line;
    if (!flow.ok() || *flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteStatement(const Statement& statement) {
  const Depth depth(this);
  if (!depth.ok()) return TooDeep();
  PENSTOCK_RETURN_IF_ERROR(Charge(1));
  switch (statement.kind) {
    case StatementKind::kOutput:
      PENSTOCK_RETURN_IF_ERROR(ExecuteOutput(static_cast<const OutputStatement&>(statement)));
      return Flow::kOn;
    case StatementKind::kIf:
      return ExecuteIf(static_cast<const IfStatement&>(statement));
    case StatementKind::kFor:
      return ExecuteFor(static_cast<const ForStatement&>(statement));
    case StatementKind::kSet: {
      const auto& node = static_cast<const SetStatement&>(statement);
      PENSTOCK_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.value));
      PENSTOCK_RETURN_IF_ERROR(Assign(node.target, value));
      return Flow::kOn;
    }
    case StatementKind::kSetBlock:
      return ExecuteSetBlock(static_cast<const SetBlockStatement&>(statement));
    case StatementKind::kMacro:
      PENSTOCK_RETURN_IF_ERROR(ExecuteMacro(static_cast<const MacroStatement&>(statement)));
      return Flow::kOn;
    case StatementKind::kCallBlock:
      PENSTOCK_RETURN_IF_ERROR(ExecuteCallBlock(static_cast<const CallBlockStatement&>(statement)));
      return Flow::kOn;
    case StatementKind::kFilterBlock:
      return ExecuteFilterBlock(static_cast<const FilterBlockStatement&>(statement));
    case StatementKind::kWith:
      return ExecuteWith(static_cast<const WithStatement&>(statement));
    case StatementKind::kGeneration:
      PENSTOCK_RETURN_IF_ERROR(
          ExecuteGeneration(static_cast<const GenerationStatement&>(statement)));
      return Flow::kOn;
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Failure("unknown statement");
}

absl::Status Interpreter::Write(std::string_view text) {
  out_->append(text);
  const int64_t size = static_cast<int64_t>(out_->size());
  PENSTOCK_RETURN_IF_ERROR(ChargeBytes(static_cast<int64_t>(text.size())));
  if (out_ != &output_) return CheckBytes(size);
  if (size <= limits_.max_output_bytes) return absl::OkStatus();
  return Error(absl::StatusCode::kResourceExhausted, reason::kDataInvalid,
               absl::StrCat("the template writes more than ", limits_.max_output_bytes, " bytes"));
}

absl::Status Interpreter::ExecuteOutput(const OutputStatement& node) {
  for (const ExpressionPtr& part : node.parts) {
    PENSTOCK_ASSIGN_OR_RETURN(const Value value, Evaluate(*part));
    if (value.is_string()) {
      PENSTOCK_RETURN_IF_ERROR(Write(value.string()));
      continue;
    }
    absl::StatusOr<std::string> text = ToText(value);
    if (!text.ok() && error_line_ == 0) error_line_ = part->line;
    if (!text.ok()) return text.status();
    PENSTOCK_RETURN_IF_ERROR(Write(*text));
  }
  return absl::OkStatus();
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteIf(const IfStatement& node) {
  for (const IfStatement::Branch& branch : node.branches) {
    PENSTOCK_ASSIGN_OR_RETURN(const Value condition, Evaluate(*branch.condition));
    PENSTOCK_ASSIGN_OR_RETURN(const bool truth, Truth(condition));
    if (truth) return Execute(branch.body);
  }
  return Execute(node.otherwise);
}

absl::Status Interpreter::Assign(const Target& target, const Value& value) {
  switch (target.kind) {
    case Target::Kind::kName:
      Variable(target.variable) = value;
      return absl::OkStatus();
    case Target::Kind::kAttribute: {
      const Value& space = Variable(target.variable);
      if (!space.is(Kind::kNamespace)) {
        return Failure(absl::StrCat("cannot set ", target.name, ".", target.attribute, ": ",
                                    target.name, " is no namespace"));
      }
      auto& attributes = space.As<NamespaceObject>();
      const int64_t count = static_cast<int64_t>(attributes.attributes.size());
      PENSTOCK_RETURN_IF_ERROR(CheckItems(count));
      PENSTOCK_RETURN_IF_ERROR(Charge(count / 16));
      attributes.Set(target.attribute, value);
      return absl::OkStatus();
    }
    case Target::Kind::kTuple:
      break;
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Value> items, ToVector(value));
  if (items.size() != target.items.size()) {
    return Failure(absl::StrCat("cannot unpack ", items.size(), " values into ",
                                target.items.size(), " names"));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    PENSTOCK_RETURN_IF_ERROR(Assign(target.items[i], items[i]));
  }
  return absl::OkStatus();
}

// ---- Loops -------------------------------------------------------------------------------------

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteFor(const ForStatement& node) {
  PENSTOCK_ASSIGN_OR_RETURN(const Value iterable, Evaluate(*node.iterable));
  if (!node.recursive) return RunLoop(node, iterable, /*depth0=*/0);
  PENSTOCK_ASSIGN_OR_RETURN(const Value text,
                            RunRecursiveLoop(node, iterable, activation_, /*depth0=*/0));
  PENSTOCK_RETURN_IF_ERROR(Write(text.string()));
  return Flow::kOn;
}

absl::StatusOr<Value> Interpreter::RunRecursiveLoop(const ForStatement& node, const Value& iterable,
                                                    Activation* closure, int64_t depth0) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Activation> activation,
                            NewActivation(node.frame_slots, closure));
  std::string text;
  absl::Status status;
  {
    const Enter enter(this, activation.get());
    std::string* const outer = std::exchange(out_, &text);
    status = RunLoop(node, iterable, depth0).status();
    out_ = outer;
  }
  EndActivation(std::move(activation));
  PENSTOCK_RETURN_IF_ERROR(status);
  return NewString(std::move(text));
}

// In the activation at hand. A jump inside the body ends here; one inside `else` goes on.
absl::StatusOr<Interpreter::Flow> Interpreter::RunLoop(const ForStatement& node,
                                                       const Value& iterable, int64_t depth0) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Iterator> iterator, Iterate(iterable));
  if (node.condition != nullptr) {
    PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Activation> activation,
                              NewActivation(node.condition_slots, activation_));
    iterator =
        std::make_unique<ConditionIterator>(node, std::move(iterator), std::move(activation));
  }
  Value loop_value = Value::Missing();
  LoopObject* loop = nullptr;
  if (node.loop_slot >= 0) {
    auto object = std::make_shared<LoopObject>();
    loop = object.get();
    loop->depth0 = depth0;
    if (node.condition == nullptr && HasLength(iterable)) {
      PENSTOCK_ASSIGN_OR_RETURN(loop->length, Length(iterable));
    }
    loop->iterator = std::move(iterator);
    if (node.recursive) {
      loop->recursive = &node;
      loop->closure = activation_->parent;
      Capture(activation_);
    }
    PENSTOCK_ASSIGN_OR_RETURN(loop_value,
                              Checked(Value::FromObject(Kind::kLoop, std::move(object))));
  }
  loop_items_.push_back(nullptr);
  const absl::StatusOr<bool> any = RunIterations(node, iterator.get(), loop, loop_value);
  loop_items_.pop_back();
  if (loop != nullptr) Close(loop);
  LeaveScope(node.scope);
  PENSTOCK_RETURN_IF_ERROR(any.status());
  if (*any) return Flow::kOn;
  PENSTOCK_RETURN_IF_ERROR(EnterScope(node.otherwise_scope));
  absl::StatusOr<Flow> flow = Execute(node.otherwise);
  LeaveScope(node.otherwise_scope);
  return flow;
}

// The items come from the loop's iterator, or from `iterator` where nobody looks at the loop.
// False if there was no item whose iteration came to its end, which is when `else` runs.
absl::StatusOr<bool> Interpreter::RunIterations(const ForStatement& node, Iterator* iterator,
                                                LoopObject* loop, const Value& loop_value) {
  bool any = false;
  while (true) {
    PENSTOCK_RETURN_IF_ERROR(Charge(1));
    std::optional<Value> item;
    if (loop == nullptr) {
      PENSTOCK_ASSIGN_OR_RETURN(item, iterator->Next(*this));
    } else if (loop->after.has_value()) {
      item = std::exchange(loop->after, std::nullopt);
    } else {
      PENSTOCK_ASSIGN_OR_RETURN(item, loop->iterator->Next(*this));
    }
    if (!item.has_value()) return any;
    if (loop != nullptr) {
      ++loop->index0;
      loop->before = std::exchange(loop->current, *item);
    }
    PENSTOCK_RETURN_IF_ERROR(Assign(node.target, *item));
    if (loop != nullptr) activation_->slots[static_cast<size_t>(node.loop_slot)] = loop_value;
    PENSTOCK_RETURN_IF_ERROR(EnterScope(node.scope));
    loop_items_.back() = &*item;
    PENSTOCK_ASSIGN_OR_RETURN(const Flow flow, Execute(node.body));
    loop_items_.back() = nullptr;
    if (flow == Flow::kBreak) return any;
    if (flow == Flow::kOn) any = true;
  }
}

// ---- Blocks ------------------------------------------------------------------------------------

absl::StatusOr<Interpreter::Flow> Interpreter::Captured(const Block& block, std::string* text) {
  std::string* const outer = std::exchange(out_, text);
  absl::StatusOr<Flow> flow = Execute(block);
  out_ = outer;
  return flow;
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteSetBlock(const SetBlockStatement& node) {
  PENSTOCK_RETURN_IF_ERROR(EnterScope(node.scope));
  std::string text;
  PENSTOCK_ASSIGN_OR_RETURN(const Flow flow, Captured(node.body, &text));
  if (flow != Flow::kOn) return flow;
  Value value;
  if (node.filter != nullptr) {
    const std::string* const outer = std::exchange(block_text_, &text);
    absl::StatusOr<Value> filtered = Evaluate(*node.filter);
    block_text_ = outer;
    PENSTOCK_RETURN_IF_ERROR(filtered.status());
    value = *std::move(filtered);
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(value, NewString(std::move(text)));
  }
  PENSTOCK_RETURN_IF_ERROR(Assign(node.target, value));
  LeaveScope(node.scope);
  return Flow::kOn;
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteFilterBlock(
    const FilterBlockStatement& node) {
  PENSTOCK_RETURN_IF_ERROR(EnterScope(node.scope));
  std::string text;
  PENSTOCK_ASSIGN_OR_RETURN(const Flow flow, Captured(node.body, &text));
  if (flow != Flow::kOn) return flow;
  const std::string* const outer = std::exchange(block_text_, &text);
  absl::StatusOr<Value> value = Evaluate(*node.filter);
  block_text_ = outer;
  PENSTOCK_RETURN_IF_ERROR(value.status());
  PENSTOCK_ASSIGN_OR_RETURN(const std::string filtered, ToText(*value));
  PENSTOCK_RETURN_IF_ERROR(Write(filtered));
  LeaveScope(node.scope);
  return Flow::kOn;
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteWith(const WithStatement& node) {
  PENSTOCK_RETURN_IF_ERROR(EnterScope(node.scope));
  for (const auto& [target, expression] : node.values) {
    PENSTOCK_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression));
    PENSTOCK_RETURN_IF_ERROR(Assign(target, value));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Flow flow, Execute(node.body));
  LeaveScope(node.scope);
  return flow;
}

absl::Status Interpreter::ExecuteMacro(const MacroStatement& node) {
  PENSTOCK_ASSIGN_OR_RETURN(const Value macro, Checked(NewMacro(node.definition)));
  Variable(node.variable) = macro;
  return absl::OkStatus();
}

absl::Status Interpreter::ExecuteCallBlock(const CallBlockStatement& node) {
  PENSTOCK_ASSIGN_OR_RETURN(const Value caller, Checked(NewMacro(node.caller)));
  PENSTOCK_ASSIGN_OR_RETURN(const Value result,
                            EvaluateCall(static_cast<const CallExpression&>(*node.call), &caller));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ToText(result));
  return Write(text);
}

// The message that a loop around stands at: the innermost loop over messages, or over something
// made of them that keeps them whole, tells.
int64_t Interpreter::CurrentMessage() const {
  for (auto item = loop_items_.rbegin(); item != loop_items_.rend(); ++item) {
    if (*item == nullptr) continue;
    const auto found = message_indices_.find((*item)->object());
    if (found != message_indices_.end()) return found->second;
  }
  return -1;
}

absl::Status Interpreter::ExecuteGeneration(const GenerationStatement& node) {
  const int64_t begin = static_cast<int64_t>(output_.size());
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Activation> activation,
                            NewActivation(node.body.frame_slots, activation_));
  absl::Status status;
  {
    const Enter enter(this, activation.get());
    ++generation_depth_;
    status = EnterScope(node.body.scope);
    if (status.ok()) status = Execute(node.body.body).status();
    --generation_depth_;
  }
  EndActivation(std::move(activation));
  PENSTOCK_RETURN_IF_ERROR(status);
  if (out_ != &output_) {
    if (rendering_.hidden_generation_line == 0) rendering_.hidden_generation_line = node.line;
    return absl::OkStatus();
  }
  const int64_t end = static_cast<int64_t>(output_.size());
  if (generation_depth_ == 0 && end > begin) {
    rendering_.generation.push_back({begin, end, CurrentMessage()});
  }
  return absl::OkStatus();
}

}  // namespace penstock::jinja
