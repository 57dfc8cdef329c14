#include "engine/template/iterators.h"

#include "engine/base/status.h"
#include "engine/template/interpreter.h"
#include "engine/template/operators.h"
#include "engine/template/text.h"

namespace penstock::jinja {
namespace {

using Item = absl::StatusOr<std::optional<Value>>;

class SequenceIterator : public Iterator {
 public:
  explicit SequenceIterator(Value sequence) : sequence_(std::move(sequence)) {}
  Item Next(Interpreter&) override {
    if (position_ >= sequence_.list().size()) return std::nullopt;
    return sequence_.list()[position_++];
  }

 private:
  Value sequence_;
  size_t position_ = 0;
};

class StringIterator : public Iterator {
 public:
  explicit StringIterator(Value text) : text_(std::move(text)) {}
  Item Next(Interpreter& interpreter) override {
    const std::string& text = text_.string();
    if (position_ >= text.size()) return std::nullopt;
    const size_t length = Utf8Length(text[position_]);
    PENSTOCK_ASSIGN_OR_RETURN(Value item, interpreter.NewString(text.substr(position_, length)));
    position_ += length;
    return item;
  }

 private:
  Value text_;
  size_t position_ = 0;
};

class RangeIterator : public Iterator {
 public:
  explicit RangeIterator(const RangeObject& range)
      : next_(range.start), step_(range.step), left_(range.size()) {}
  Item Next(Interpreter&) override {
    if (left_ == 0) return std::nullopt;
    const Value item = Value::Int(next_);
    if (--left_ > 0) next_ += step_;
    return item;
  }

 private:
  int64_t next_;
  int64_t step_;
  int64_t left_;
};

class DictIterator : public Iterator {
 public:
  DictIterator(Value dict, DictPart part) : dict_(std::move(dict)), part_(part) {}
  Item Next(Interpreter& interpreter) override {
    if (position_ >= dict_.dict().size()) return std::nullopt;
    const auto& [key, value] = dict_.dict()[position_++];
    if (part_ == DictPart::kKeys) return key;
    if (part_ == DictPart::kValues) return value;
    PENSTOCK_ASSIGN_OR_RETURN(Value pair, interpreter.NewTuple({key, value}));
    return pair;
  }

 private:
  Value dict_;
  DictPart part_;
  size_t position_ = 0;
};

// What is left of a generator, which goes on where anybody else stopped.
class GeneratorIterator : public Iterator {
 public:
  explicit GeneratorIterator(Value generator) : generator_(std::move(generator)) {}
  Item Next(Interpreter& interpreter) override {
    return generator_.As<GeneratorObject>().iterator->Next(interpreter);
  }

 private:
  Value generator_;
};

}  // namespace

Item VectorIterator::Next(Interpreter&) {
  if (position_ >= items_.size()) return std::nullopt;
  return items_[position_++];
}

Item ReverseIterator::Next(Interpreter&) {
  if (left_ == 0) return std::nullopt;
  return sequence_.list()[--left_];
}

int64_t RangeObject::size() const {
  if (step > 0 ? start >= stop : start <= stop) return 0;
  // Unsigned, as the distance may be larger than an int64_t.
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                     : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride =
      step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
  const uint64_t count = (distance - 1) / stride + 1;
  return count > INT64_MAX ? INT64_MAX : static_cast<int64_t>(count);
}

Value* NamespaceObject::Find(std::string_view name) {
  for (auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

void NamespaceObject::Set(std::string_view name, Value value) {
  if (Value* found = Find(name)) {
    *found = std::move(value);
  } else {
    attributes.emplace_back(name, std::move(value));
  }
}

absl::StatusOr<std::unique_ptr<Iterator>> Interpreter::Iterate(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return std::make_unique<VectorIterator>(std::vector<Value>());
    case Kind::kString:
      return std::make_unique<StringIterator>(value);
    case Kind::kList:
    case Kind::kTuple:
      return std::make_unique<SequenceIterator>(value);
    case Kind::kDict:
      return std::make_unique<DictIterator>(value, DictPart::kKeys);
    case Kind::kDictView: {
      const auto& view = value.As<DictViewObject>();
      return std::make_unique<DictIterator>(view.dict, view.part);
    }
    case Kind::kRange:
      return std::make_unique<RangeIterator>(value.As<RangeObject>());
    case Kind::kGenerator:
      return std::make_unique<GeneratorIterator>(value);
    default:
      return TypeFailure(value, "cannot be iterated over");
  }
}

absl::StatusOr<std::vector<Value>> Interpreter::ToVector(const Value& iterable) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Iterator> iterator, Iterate(iterable));
  std::vector<Value> items;
  while (true) {
    PENSTOCK_RETURN_IF_ERROR(Charge(1));
    PENSTOCK_ASSIGN_OR_RETURN(std::optional<Value> item, iterator->Next(*this));
    if (!item.has_value()) return items;
    items.push_back(*std::move(item));
    PENSTOCK_RETURN_IF_ERROR(CheckItems(static_cast<int64_t>(items.size())));
  }
}

absl::StatusOr<const std::optional<Value>*> Interpreter::LoopPeek(LoopObject& loop) {
  if (!loop.after.has_value() && loop.iterator != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(Charge(1));
    PENSTOCK_ASSIGN_OR_RETURN(loop.after, loop.iterator->Next(*this));
  }
  return &loop.after;
}

absl::StatusOr<int64_t> Interpreter::LoopLength(LoopObject& loop) {
  if (loop.length.has_value()) return *loop.length;
  std::vector<Value> rest;
  while (loop.iterator != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(Charge(1));
    PENSTOCK_ASSIGN_OR_RETURN(std::optional<Value> item, loop.iterator->Next(*this));
    if (!item.has_value()) break;
    rest.push_back(*std::move(item));
    PENSTOCK_RETURN_IF_ERROR(CheckItems(static_cast<int64_t>(rest.size())));
  }
  loop.length =
      static_cast<int64_t>(rest.size()) + loop.index0 + 1 + (loop.after.has_value() ? 1 : 0);
  loop.iterator = std::make_unique<VectorIterator>(std::move(rest));
  return *loop.length;
}

}  // namespace penstock::jinja
