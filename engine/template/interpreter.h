// Runs a parsed template once, within limits. One thread; the template, the values passed in and
// the rest of the process are untouched by what it does.
//
// Functions here and in the files beside it return InvalidArgument for what Python or jinja2
// would raise, and ResourceExhausted for a limit; the first line that an error passed through is
// put before it when the render ends.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/template/ast.h"
#include "engine/template/limits.h"
#include "engine/template/objects.h"
#include "engine/template/value.h"

namespace penstock::jinja {

// The variables of one call of a function: the template, a macro, a recursive loop.
struct Activation {
  std::vector<Value> slots;
  Activation* parent = nullptr;
  bool captured = false;  // a macro or a loop may still look into it when the call is over
};

// What a `generation` block wrote: bytes of the output, and which of `messages` a loop around the
// block stood at (-1 if none did).
struct GenerationSpan {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t message = -1;
};

struct Rendering {
  std::string text;
  std::vector<GenerationSpan> generation;
  // A generation block ran while its output went to a variable or was the result of a macro, so
  // that where it ended up in `text` is not known. Its line, or 0.
  int hidden_generation_line = 0;
};

struct RenderInput {
  std::vector<std::pair<std::string, Value>> variables;  // names are distinct
  int64_t now_unix_seconds = 0;
};

absl::Status Failure(std::string_view message);

class Interpreter {
 public:
  // `syntax` and `input` must outlive the interpreter.
  Interpreter(const Syntax& syntax, const RenderInput& input, const Limits& limits);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  absl::StatusOr<Rendering> Run();

  // ---- For filters, tests, methods and functions ----
  int64_t now_unix_seconds() const { return input_.now_unix_seconds; }
  const Limits& limits() const { return limits_; }
  // Pays for work. ResourceExhausted when the render has had enough.
  absl::Status Charge(int64_t steps);
  absl::Status ChargeBytes(int64_t bytes) { return Charge(bytes / 256); }
  // ResourceExhausted if a string of this many bytes, or list of so many items, is too large to
  // be made. To be asked before making it.
  absl::Status CheckBytes(int64_t bytes) const;
  absl::Status CheckItems(int64_t items) const;
  absl::StatusOr<Value> NewString(std::string text) {
    return Checked(Value::String(std::move(text)));
  }
  absl::StatusOr<Value> NewStringLike(const Value& model, std::string text);  // markup if it is
  absl::StatusOr<Value> NewList(std::vector<Value> items);
  absl::StatusOr<Value> NewTuple(std::vector<Value> items);
  absl::StatusOr<Value> NewDict(std::vector<DictItem> items);  // checks that keys are hashable
  absl::StatusOr<Value> NewNamespace(std::vector<std::pair<std::string, Value>> attributes);
  absl::StatusOr<Value> NewGenerator(std::string_view name, std::unique_ptr<Iterator> iterator,
                                     const Value& source, const CallArguments* arguments = nullptr);
  static Value NewUndefined(std::string message);
  // `value`, if it is within the limits for nesting and size.
  absl::StatusOr<Value> Checked(Value value);

  absl::StatusOr<std::unique_ptr<Iterator>> Iterate(const Value& value);
  absl::StatusOr<std::vector<Value>> ToVector(const Value& iterable);
  absl::StatusOr<int64_t> Length(const Value& value);
  absl::StatusOr<bool> Truth(const Value& value);
  absl::StatusOr<std::string> ToText(const Value& value);  // str(value)
  absl::StatusOr<Value> Call(const Value& callee, CallArguments arguments);
  absl::StatusOr<Value> CallFilter(std::string_view name, const Value& value,
                                   CallArguments arguments);
  absl::StatusOr<bool> CallTest(std::string_view name, const Value& value, CallArguments arguments);

  absl::StatusOr<Value> Evaluate(const Expression& expression);
  absl::Status Assign(const Target& target, const Value& value);

  // Makes `activation` the one whose variables names stand for, while it lives.
  class Enter {
   public:
    Enter(Interpreter* interpreter, Activation* activation)
        : interpreter_(interpreter), outer_(std::exchange(interpreter->activation_, activation)) {}
    ~Enter() { interpreter_->activation_ = outer_; }
    Enter(const Enter&) = delete;
    Enter& operator=(const Enter&) = delete;

   private:
    Interpreter* const interpreter_;
    Activation* const outer_;
  };
  absl::Status EnterScope(const Scope& scope);

  // loop.length, loop.last and their like, reading ahead as far as needed.
  absl::StatusOr<int64_t> LoopLength(LoopObject& loop);
  absl::StatusOr<const std::optional<Value>*> LoopPeek(LoopObject& loop);

 private:
  enum class Flow { kOn, kBreak, kContinue };
  // A level of evaluation while it lives.
  class Depth {
   public:
    explicit Depth(Interpreter* interpreter) : interpreter_(interpreter) { ++interpreter_->depth_; }
    ~Depth() { --interpreter_->depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    bool ok() const { return interpreter_->depth_ <= interpreter_->limits_.max_depth; }

   private:
    Interpreter* const interpreter_;
  };

  absl::Status TooDeep() const;
  absl::Status CountBytes(int64_t bytes);
  Value& Variable(const VariableRef& ref);
  void LeaveScope(const Scope& scope);
  absl::StatusOr<std::unique_ptr<Activation>> NewActivation(int slots, Activation* parent);
  void EndActivation(std::unique_ptr<Activation> activation);
  static void Capture(Activation* activation);

  absl::StatusOr<Value> EvaluateNode(const Expression& expression);
  absl::StatusOr<Value> EvaluateName(const NameExpression& node);
  absl::StatusOr<Value> EvaluateItems(const ItemsExpression& node);
  absl::StatusOr<Value> EvaluateUnary(const UnaryExpression& node);
  absl::StatusOr<Value> EvaluateLogic(const BinaryExpression& node);
  absl::StatusOr<Value> EvaluateCompare(const CompareExpression& node);
  absl::StatusOr<Value> EvaluateConcat(const ItemsExpression& node);
  absl::StatusOr<Value> EvaluateItem(const ItemExpression& node);
  absl::StatusOr<Value> EvaluateSlice(const Value& object, const SliceExpression& slice);
  absl::StatusOr<Value> EvaluateCall(const CallExpression& node, const Value* caller);
  absl::StatusOr<Value> EvaluateFilter(const FilterExpression& node);
  absl::StatusOr<Value> EvaluateTest(const TestExpression& node);
  absl::StatusOr<Value> EvaluateConditional(const ConditionalExpression& node);
  absl::StatusOr<CallArguments> EvaluateArguments(const ArgumentsSyntax& arguments);

  absl::StatusOr<Flow> Execute(const Block& block);
  absl::StatusOr<Flow> ExecuteStatement(const Statement& statement);
  absl::Status ExecuteOutput(const OutputStatement& node);
  absl::StatusOr<Flow> ExecuteIf(const IfStatement& node);
  absl::StatusOr<Flow> ExecuteFor(const ForStatement& node);
  absl::StatusOr<Flow> RunLoop(const ForStatement& node, const Value& iterable, int64_t depth0);
  absl::StatusOr<bool> RunIterations(const ForStatement& node, Iterator* iterator, LoopObject* loop,
                                     const Value& loop_value);
  absl::StatusOr<Value> RunRecursiveLoop(const ForStatement& node, const Value& iterable,
                                         Activation* closure, int64_t depth0);
  absl::StatusOr<Flow> ExecuteSetBlock(const SetBlockStatement& node);
  absl::StatusOr<Flow> ExecuteFilterBlock(const FilterBlockStatement& node);
  absl::StatusOr<Flow> ExecuteWith(const WithStatement& node);
  absl::Status ExecuteMacro(const MacroStatement& node);
  absl::Status ExecuteCallBlock(const CallBlockStatement& node);
  absl::Status ExecuteGeneration(const GenerationStatement& node);
  // Runs `block` with its output going to `text`.
  absl::StatusOr<Flow> Captured(const Block& block, std::string* text);
  absl::Status Write(std::string_view text);
  int64_t CurrentMessage() const;

  Value NewMacro(const MacroDefinition& definition);
  absl::StatusOr<Value> CallMacro(const MacroObject& macro, CallArguments arguments);
  absl::Status BindParameters(const MacroDefinition& macro, CallArguments* arguments,
                              std::vector<Value>* slots);

  const Syntax& syntax_;
  const RenderInput& input_;
  const Limits limits_;
  std::unordered_map<std::string_view, const Value*> variables_;
  std::unordered_map<const Object*, int64_t> message_indices_;

  int64_t steps_ = 0;
  int64_t total_bytes_ = 0;
  int depth_ = 0;
  int error_line_ = 0;
  Activation* activation_ = nullptr;
  std::string output_;                       // of the template itself
  std::string* out_ = &output_;              // where output goes now
  const std::string* block_text_ = nullptr;  // what the filter of a block stands on
  std::vector<const Value*> loop_items_;     // of the loops that are running, innermost last
  int generation_depth_ = 0;
  Rendering rendering_;
  // What may point to each other in circles; emptied at the end.
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
  std::vector<std::unique_ptr<Activation>> kept_;
};

// ---- Arguments -------------------------------------------------------------------------------

// The arguments of a call by position, as a Python function with these parameters takes them;
// nullopt for one that was not given. A name of "" can be given by position only. The first
// `required` must be given.
absl::StatusOr<std::vector<std::optional<Value>>> BindArguments(
    std::string_view function, CallArguments arguments,
    std::initializer_list<std::string_view> names, size_t required = 0);

}  // namespace penstock::jinja
