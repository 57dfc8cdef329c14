// The objects that a render makes for itself, and that a caller never passes in.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/template/value.h"

namespace penstock::jinja {

class Interpreter;
struct Activation;
struct ForStatement;
struct MacroDefinition;

// The result of looking up what is not there: prints as nothing, is false, iterates over
// nothing; any other use fails with `message`.
struct UndefinedObject : Object {
  std::string message;
};

// start, stop and step of a range are within this, so that no sum of them overflows.
inline constexpr int64_t kMaxRangeNumber = int64_t{1} << 60;

struct RangeObject : Object {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  int64_t size() const;
};

// What namespace() returns: the one thing that `set` can change from inside a loop.
struct NamespaceObject : Object {
  std::vector<std::pair<std::string, Value>> attributes;
  Value* Find(std::string_view name);
  void Set(std::string_view name, Value value);
};

struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// range, namespace, dict and their like; raise_exception, strftime_now.
struct FunctionObject : Object {
  using Call = absl::StatusOr<Value> (*)(Interpreter&, CallArguments);
  std::string_view name;
  Call call = nullptr;
};

// A method that was looked up and not yet called: text.strip.
struct MethodObject : Object {
  Value self;
  std::string name;
};

struct MacroObject : Object {
  const MacroDefinition* definition = nullptr;
  Activation* closure = nullptr;  // owned by the interpreter
};

// Items one after another; what comes next may be computed on demand.
class Iterator {
 public:
  virtual ~Iterator() = default;
  // The next item, or nullopt at the end and ever after.
  virtual absl::StatusOr<std::optional<Value>> Next(Interpreter& interpreter) = 0;
};

// What lazy filters return: can be gone through once.
struct GeneratorObject : Object {
  std::unique_ptr<Iterator> iterator;
  std::string_view name;  // of the filter
};

enum class DictPart { kKeys, kValues, kItems };
struct DictViewObject : Object {
  Value dict;
  DictPart part = DictPart::kKeys;
};

// `loop` inside a for loop.
struct LoopObject : Object {
  std::unique_ptr<Iterator> iterator;
  int64_t index0 = -1;
  int64_t depth0 = 0;
  std::optional<int64_t> length;  // known up front, or after it was asked for
  std::optional<Value> after;     // read ahead, for last and nextitem
  Value before = Value::Missing();
  Value current = Value::Missing();
  std::optional<std::vector<Value>> changed;  // arguments of the last changed(...)
  const ForStatement* recursive = nullptr;    // what loop(...) runs
  Activation* closure = nullptr;
};

struct CyclerObject : Object {
  std::vector<Value> items;
  size_t position = 0;
};

struct JoinerObject : Object {
  Value separator;
  bool used = false;
};

}  // namespace penstock::jinja
