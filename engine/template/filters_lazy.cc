// Filters whose results are generators: each item is computed when it is asked for, so that an
// error in one that nobody looks at does not happen, as in Python.
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/filter_functions.h"
#include "engine/template/iterators.h"
#include "engine/template/operators.h"
#include "engine/template/text.h"

namespace penstock::jinja {
namespace {

using Item = absl::StatusOr<std::optional<Value>>;

// Goes through `source` on demand. What Begin() finds wrong is an error of the first item.
class LazyFilter : public Iterator {
 public:
  explicit LazyFilter(Value source) : source_(std::move(source)) {}

  Item Next(Interpreter& interpreter) final {
    PENSTOCK_RETURN_IF_ERROR(interpreter.Charge(1));
    if (!std::exchange(started_, true)) PENSTOCK_RETURN_IF_ERROR(Begin(interpreter));
    if (done_) return std::nullopt;
    PENSTOCK_ASSIGN_OR_RETURN(std::optional<Value> item, NextItem(interpreter));
    done_ = !item.has_value();
    return item;
  }

 protected:
  virtual absl::Status Begin(Interpreter& interpreter) { return Open(interpreter); }
  virtual Item NextItem(Interpreter& interpreter) = 0;

  absl::Status Open(Interpreter& interpreter) {
    PENSTOCK_ASSIGN_OR_RETURN(items_, interpreter.Iterate(source_));
    return absl::OkStatus();
  }
  // jinja2's map and select go through nothing that is false.
  absl::Status OpenIfTrue(Interpreter& interpreter) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool truth, interpreter.Truth(source_));
    done_ = !truth;
    return truth ? Open(interpreter) : absl::OkStatus();
  }
  Item Pull(Interpreter& interpreter) { return items_->Next(interpreter); }
  const Value& source() const { return source_; }
  bool done() const { return done_; }
  void EndNow() { done_ = true; }

 private:
  const Value source_;
  std::unique_ptr<Iterator> items_;
  bool started_ = false;
  bool done_ = false;
};

// A filter or test with its arguments, as `map` and `select` take them: the name first.
struct NamedCall {
  std::string name;
  CallArguments arguments;
};

absl::StatusOr<NamedCall> TakeCall(CallArguments arguments, size_t position) {
  NamedCall call;
  const Value& name = arguments.positional[position];
  if (!name.is_string()) return TypeFailure(name, "is no name of a filter or test");
  call.name = name.string();
  arguments.positional.erase(arguments.positional.begin(),
                             arguments.positional.begin() + static_cast<ptrdiff_t>(position) + 1);
  call.arguments = std::move(arguments);
  return call;
}

class MapIterator : public LazyFilter {
 public:
  MapIterator(Value source, CallArguments arguments)
      : LazyFilter(std::move(source)), arguments_(std::move(arguments)) {}

 protected:
  absl::Status Begin(Interpreter& interpreter) override {
    PENSTOCK_RETURN_IF_ERROR(OpenIfTrue(interpreter));
    if (done()) return absl::OkStatus();
    if (!arguments_.positional.empty()) {
      PENSTOCK_ASSIGN_OR_RETURN(filter_, TakeCall(arguments_, 0));
      return absl::OkStatus();
    }
    std::optional<Value> attribute;
    for (auto& [name, value] : arguments_.named) {
      if (name == "attribute") {
        attribute = value;
      } else if (name == "default") {
        fallback_ = value;
      } else {
        return Failure(absl::StrCat("map has no argument called ", name));
      }
    }
    if (!attribute.has_value()) return Failure("map needs a filter or an attribute");
    PENSTOCK_ASSIGN_OR_RETURN(path_, AttributePath::Parse(attribute));
    return absl::OkStatus();
  }

  Item NextItem(Interpreter& interpreter) override {
    PENSTOCK_ASSIGN_OR_RETURN(std::optional<Value> item, Pull(interpreter));
    if (!item.has_value()) return std::nullopt;
    Value mapped;
    if (filter_.name.empty()) {
      PENSTOCK_ASSIGN_OR_RETURN(mapped, path_.Get(interpreter, *std::move(item), fallback_));
    } else {
      PENSTOCK_ASSIGN_OR_RETURN(mapped,
                                interpreter.CallFilter(filter_.name, *item, filter_.arguments));
    }
    return mapped;
  }

 private:
  const CallArguments arguments_;
  NamedCall filter_;  // no name: the attribute
  AttributePath path_;
  std::optional<Value> fallback_;
};

enum class Wanted { kPassing, kFailing };
enum class Tested { kItem, kAttribute };

class SelectIterator : public LazyFilter {
 public:
  SelectIterator(Value source, CallArguments arguments, Wanted wanted, Tested tested)
      : LazyFilter(std::move(source)),
        arguments_(std::move(arguments)),
        wanted_(wanted),
        tested_(tested) {}

 protected:
  absl::Status Begin(Interpreter& interpreter) override {
    PENSTOCK_RETURN_IF_ERROR(OpenIfTrue(interpreter));
    if (done()) return absl::OkStatus();
    size_t position = 0;
    if (tested_ == Tested::kAttribute) {
      if (arguments_.positional.empty()) return Failure("an attribute to select by is missing");
      PENSTOCK_ASSIGN_OR_RETURN(path_, AttributePath::Parse(arguments_.positional[0]));
      position = 1;
    }
    if (arguments_.positional.size() > position) {
      PENSTOCK_ASSIGN_OR_RETURN(test_, TakeCall(arguments_, position));
    }
    return absl::OkStatus();
  }

  Item NextItem(Interpreter& interpreter) override {
    while (true) {
      PENSTOCK_RETURN_IF_ERROR(interpreter.Charge(1));
      PENSTOCK_ASSIGN_OR_RETURN(std::optional<Value> item, Pull(interpreter));
      if (!item.has_value()) return std::nullopt;
      PENSTOCK_ASSIGN_OR_RETURN(const Value value, path_.Get(interpreter, *item));
      bool passes = false;
      if (test_.name.empty()) {
        PENSTOCK_ASSIGN_OR_RETURN(passes, interpreter.Truth(value));
      } else {
        PENSTOCK_ASSIGN_OR_RETURN(passes, interpreter.CallTest(test_.name, value, test_.arguments));
      }
      if (passes == (wanted_ == Wanted::kPassing)) return item;
    }
  }

 private:
  const CallArguments arguments_;
  const Wanted wanted_;
  const Tested tested_;
  AttributePath path_;
  NamedCall test_;  // no name: truth
};

FilterResult Select(Interpreter& interpreter, std::string_view name, const Value& value,
                    CallArguments arguments, Wanted wanted, Tested tested) {
  auto iterator = std::make_unique<SelectIterator>(value, arguments, wanted, tested);
  return interpreter.NewGenerator(name, std::move(iterator), value, &arguments);
}

class ItemsIterator : public LazyFilter {
 public:
  using LazyFilter::LazyFilter;

 protected:
  absl::Status Begin(Interpreter&) override {
    if (source().is_undefined() || source().is_dict()) return absl::OkStatus();
    return TypeFailure(source(), "has no items; it is no dict");
  }
  Item NextItem(Interpreter& interpreter) override {
    if (source().is_undefined() || position_ >= source().dict().size()) return std::nullopt;
    const auto& [key, value] = source().dict()[position_++];
    PENSTOCK_ASSIGN_OR_RETURN(Value pair, interpreter.NewTuple({key, value}));
    return pair;
  }

 private:
  size_t position_ = 0;
};

class UniqueIterator : public LazyFilter {
 public:
  UniqueIterator(Value source, bool case_sensitive, AttributePath path)
      : LazyFilter(std::move(source)), case_sensitive_(case_sensitive), path_(std::move(path)) {}

 protected:
  Item NextItem(Interpreter& interpreter) override {
    while (true) {
      PENSTOCK_ASSIGN_OR_RETURN(std::optional<Value> item, Pull(interpreter));
      if (!item.has_value()) return std::nullopt;
      PENSTOCK_ASSIGN_OR_RETURN(Value key, path_.Get(interpreter, *item));
      if (!case_sensitive_) {
        PENSTOCK_ASSIGN_OR_RETURN(key, IgnoreCase(interpreter, std::move(key)));
      }
      if (!IsHashable(key)) return TypeFailure(key, "cannot be told apart by unique");
      PENSTOCK_RETURN_IF_ERROR(interpreter.Charge(key.weight()));
      if (Insert(std::move(key))) return item;
    }
  }

 private:
  // False if an equal key was there.
  bool Insert(Value key) {
    const uint64_t hash = HashOf(key);
    const auto [first, last] = seen_.equal_range(hash);
    for (auto at = first; at != last; ++at) {
      if (Equal(at->second, key)) return false;
    }
    seen_.emplace(hash, std::move(key));
    return true;
  }

  const bool case_sensitive_;
  const AttributePath path_;
  std::unordered_multimap<uint64_t, Value> seen_;
};

class BatchIterator : public LazyFilter {
 public:
  BatchIterator(Value source, Value size, Value fill)
      : LazyFilter(std::move(source)), size_(std::move(size)), fill_(std::move(fill)) {}

 protected:
  Item NextItem(Interpreter& interpreter) override {
    while (!last_) {
      PENSTOCK_RETURN_IF_ERROR(interpreter.Charge(1));
      PENSTOCK_ASSIGN_OR_RETURN(std::optional<Value> item, Pull(interpreter));
      if (!item.has_value()) {
        last_ = true;
        if (batch_.empty()) return std::nullopt;
        PENSTOCK_RETURN_IF_ERROR(Fill(interpreter));
        return List(interpreter, std::move(batch_));
      }
      std::vector<Value> full;
      const bool is_full = Equal(Value::Int(static_cast<int64_t>(batch_.size())), size_);
      if (is_full) full = std::exchange(batch_, {});
      batch_.push_back(*std::move(item));
      if (is_full) return List(interpreter, std::move(full));
    }
    return std::nullopt;
  }

 private:
  static Item List(Interpreter& interpreter, std::vector<Value> items) {
    PENSTOCK_ASSIGN_OR_RETURN(Value list, interpreter.NewList(std::move(items)));
    return list;
  }
  absl::Status Fill(Interpreter& interpreter) {
    if (fill_.is_none()) return absl::OkStatus();
    if (!size_.is_integral()) return TypeFailure(size_, "stands where an integer is needed");
    PENSTOCK_RETURN_IF_ERROR(interpreter.CheckItems(size_.integer()));
    while (static_cast<int64_t>(batch_.size()) < size_.integer()) batch_.push_back(fill_);
    return absl::OkStatus();
  }

  const Value size_;
  const Value fill_;
  std::vector<Value> batch_;
  bool last_ = false;
};

// A sequence in a given number of parts.
class SliceIterator : public LazyFilter {
 public:
  SliceIterator(Value source, Value count, Value fill)
      : LazyFilter(std::move(source)), count_(std::move(count)), fill_(std::move(fill)) {}

 protected:
  absl::Status Begin(Interpreter& interpreter) override {
    PENSTOCK_ASSIGN_OR_RETURN(items_, interpreter.ToVector(source()));
    if (!count_.is_integral()) return TypeFailure(count_, "stands where an integer is needed");
    if (count_.integer() == 0) return Failure("division by zero");
    if (count_.integer() < 0) EndNow();
    return absl::OkStatus();
  }
  Item NextItem(Interpreter& interpreter) override {
    const int64_t count = count_.integer();
    if (part_ >= count) return std::nullopt;
    const int64_t length = static_cast<int64_t>(items_.size());
    const bool longer = part_ < length % count;
    const int64_t end = position_ + length / count + (longer ? 1 : 0);
    std::vector<Value> items(items_.begin() + position_, items_.begin() + end);
    if (!fill_.is_none() && !longer) items.push_back(fill_);
    position_ = end;
    ++part_;
    PENSTOCK_ASSIGN_OR_RETURN(Value list, interpreter.NewList(std::move(items)));
    return list;
  }

 private:
  const Value count_;
  const Value fill_;
  std::vector<Value> items_;
  int64_t part_ = 0;
  int64_t position_ = 0;
};

}  // namespace

FilterResult FilterMap(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  auto iterator = std::make_unique<MapIterator>(value, arguments);
  return interpreter.NewGenerator("map", std::move(iterator), value, &arguments);
}

FilterResult FilterSelect(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  return Select(interpreter, "select", value, std::move(arguments), Wanted::kPassing,
                Tested::kItem);
}

FilterResult FilterReject(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  return Select(interpreter, "reject", value, std::move(arguments), Wanted::kFailing,
                Tested::kItem);
}

FilterResult FilterSelectAttribute(Interpreter& interpreter, const Value& value,
                                   CallArguments arguments) {
  return Select(interpreter, "selectattr", value, std::move(arguments), Wanted::kPassing,
                Tested::kAttribute);
}

FilterResult FilterRejectAttribute(Interpreter& interpreter, const Value& value,
                                   CallArguments arguments) {
  return Select(interpreter, "rejectattr", value, std::move(arguments), Wanted::kFailing,
                Tested::kAttribute);
}

FilterResult FilterItems(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_RETURN_IF_ERROR(BindArguments("items", std::move(arguments), {}).status());
  return interpreter.NewGenerator("items", std::make_unique<ItemsIterator>(value), value);
}

FilterResult FilterUnique(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(
      auto bound, BindArguments("unique", std::move(arguments), {"case_sensitive", "attribute"}));
  PENSTOCK_ASSIGN_OR_RETURN(const bool case_sensitive, FlagOr(interpreter, bound[0], false));
  PENSTOCK_ASSIGN_OR_RETURN(AttributePath path, AttributePath::Parse(bound[1]));
  auto iterator = std::make_unique<UniqueIterator>(value, case_sensitive, std::move(path));
  return interpreter.NewGenerator("unique", std::move(iterator), value);
}

FilterResult FilterBatch(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(
      auto bound, BindArguments("batch", std::move(arguments), {"linecount", "fill_with"}, 1));
  const Value fill = bound[1].value_or(Value::None());
  CallArguments held;
  held.positional = {fill};
  auto iterator = std::make_unique<BatchIterator>(value, *bound[0], fill);
  return interpreter.NewGenerator("batch", std::move(iterator), value, &held);
}

FilterResult FilterSlice(Interpreter& interpreter, const Value& value, CallArguments arguments) {
  PENSTOCK_ASSIGN_OR_RETURN(
      auto bound, BindArguments("slice", std::move(arguments), {"slices", "fill_with"}, 1));
  const Value fill = bound[1].value_or(Value::None());
  CallArguments held;
  held.positional = {fill};
  auto iterator = std::make_unique<SliceIterator>(value, *bound[0], fill);
  return interpreter.NewGenerator("slice", std::move(iterator), value, &held);
}

}  // namespace penstock::jinja
