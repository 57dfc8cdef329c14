// The values that templates compute with: Python's, as far as chat templates need them.
//
// A Value is small and cheap to copy: what it holds beyond a number is shared, as in Python. What
// a caller passes in is never changed, as the sandbox has no mutating method. Only objects that
// a render makes for itself change: namespaces, generators, loops (engine/template/objects.h);
// so values without those may be shared between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::jinja {

enum class Kind : uint8_t {
  kMissing,  // a variable without a value; never seen by a template
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kNamespace,
  kFunction,
  kMethod,
  kMacro,
  kLoop,
  kGenerator,
  kDictView,
  kCycler,
  kJoiner,
};

// What values share. Kinds that hold more than a number have a type of their own, here or in
// objects.h. The two numbers are known when an object is made, so that a render can refuse one
// before anything has to walk through it.
struct Object {
  virtual ~Object() = default;
  int nesting = 0;     // how deep containers nest in it: 0 for what holds nothing
  int64_t weight = 1;  // the steps that it takes to walk through it, with what it holds
};

class Value;
using DictItem = std::pair<Value, Value>;

class Value {
 public:
  Value() = default;  // None
  static Value Missing() { return Value(Kind::kMissing); }
  static Value None() { return Value(); }
  static Value Bool(bool value);
  static Value Int(int64_t value);
  static Value Float(double value);
  static Value String(std::string text);
  static Value Markup(std::string text);  // `text` after the filter `safe`
  static Value List(std::vector<Value> items);
  static Value Tuple(std::vector<Value> items);
  // A later item replaces the value of an earlier one with an equal key. REQUIRES: keys are
  // hashable (IsHashable).
  static Value Dict(std::vector<DictItem> items);
  static Value Dict(std::vector<std::pair<std::string, Value>> items);
  static Value FromObject(Kind kind, std::shared_ptr<Object> object);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_missing() const { return is(Kind::kMissing); }
  bool is_undefined() const { return is(Kind::kUndefined); }
  bool is_none() const { return is(Kind::kNone); }
  bool is_bool() const { return is(Kind::kBool); }
  bool is_int() const { return is(Kind::kInt); }
  bool is_float() const { return is(Kind::kFloat); }
  bool is_string() const { return is(Kind::kString); }
  bool is_list() const { return is(Kind::kList); }
  bool is_sequence() const { return is(Kind::kList) || is(Kind::kTuple); }
  bool is_dict() const { return is(Kind::kDict); }
  // Python's bool is an int.
  bool is_integral() const { return is_int() || is_bool(); }
  bool is_number() const { return is_integral() || is_float(); }

  bool boolean() const { return integer_ != 0; }  // REQUIRES: is_bool()
  int64_t integer() const { return integer_; }    // REQUIRES: is_integral()
  double number() const;                          // REQUIRES: is_number()
  const std::string& string() const;              // REQUIRES: is_string()
  bool is_markup() const;                         // REQUIRES: is_string()
  int64_t string_length() const;                  // in code points. REQUIRES: is_string()
  const std::vector<Value>& list() const;         // REQUIRES: is_sequence()
  const std::vector<DictItem>& dict() const;      // in order. REQUIRES: is_dict()

  // The value of a key, or nullptr. REQUIRES: is_dict()
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;

  int nesting() const { return object_ == nullptr ? 0 : object_->nesting; }
  int64_t weight() const { return object_ == nullptr ? 1 : object_->weight; }

  Object* object() const { return object_.get(); }
  const std::shared_ptr<Object>& shared_object() const { return object_; }
  template <typename T>
  T& As() const {
    return static_cast<T&>(*object_);
  }

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::kNone;
  union {
    int64_t integer_ = 0;
    double number_;
  };
  std::shared_ptr<Object> object_;
};

struct StringObject : Object {
  std::string text;
  int64_t length = 0;  // code points
  bool markup = false;
};

struct SequenceObject : Object {
  std::vector<Value> items;
};

struct DictObject : Object {
  std::vector<DictItem> items;
  // Positions by hash of the key, sorted; only of dicts large enough to need it.
  std::vector<std::pair<uint64_t, uint32_t>> index;
};

// Makes `object` one level deeper than `part`, and heavier by it.
void AddPart(const Value& part, Object* object);

// The type's name in Python, for messages.
std::string_view TypeName(const Value& value);

// Python's ==. Values nested deeper than they can be made compare unequal.
bool Equal(const Value& a, const Value& b);
// Whether `value` may be a key: no list, no dict, no tuple with one of those.
bool IsHashable(const Value& value);
uint64_t HashOf(const Value& value);
// Python's `is`, where that is no accident of its implementation.
bool SameObject(const Value& a, const Value& b);

}  // namespace penstock::jinja
