#include "engine/template/value.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/base/check.h"
#include "engine/template/objects.h"
#include "engine/template/text.h"

namespace penstock::jinja {
namespace {

constexpr int64_t kBytesPerStep = 256;
constexpr int64_t kMaxWeight = int64_t{1} << 60;  // sums stop there
constexpr size_t kIndexedItems = 16;              // smaller dicts are searched one by one
constexpr int kMaxCompareDepth = 200;             // above Limits::max_value_depth

Value MakeString(std::string text, bool markup) {
  auto object = std::make_shared<StringObject>();
  object->length = CountCodePoints(text);
  object->weight = 1 + static_cast<int64_t>(text.size()) / kBytesPerStep;
  object->text = std::move(text);
  object->markup = markup;
  return Value::FromObject(Kind::kString, std::move(object));
}

Value MakeSequence(Kind kind, std::vector<Value> items) {
  auto object = std::make_shared<SequenceObject>();
  object->nesting = 1;
  for (const Value& item : items) AddPart(item, object.get());
  object->items = std::move(items);
  return Value::FromObject(kind, std::move(object));
}

// Position of `key` among the items, or their number.
size_t FindItem(const DictObject& dict, const Value& key) {
  if (dict.index.empty()) {
    for (size_t i = 0; i < dict.items.size(); ++i) {
      if (Equal(dict.items[i].first, key)) return i;
    }
    return dict.items.size();
  }
  const uint64_t hash = HashOf(key);
  auto at = std::lower_bound(dict.index.begin(), dict.index.end(),
                             std::pair<uint64_t, uint32_t>(hash, 0));
  for (; at != dict.index.end() && at->first == hash; ++at) {
    if (Equal(dict.items[at->second].first, key)) return at->second;
  }
  return dict.items.size();
}

// Drops items whose key came before, after giving that one their value.
void MergeEqualKeys(std::vector<DictItem>* items) {
  std::vector<std::pair<uint64_t, uint32_t>> order;
  order.reserve(items->size());
  for (size_t i = 0; i < items->size(); ++i) {
    order.emplace_back(HashOf((*items)[i].first), static_cast<uint32_t>(i));
  }
  std::sort(order.begin(), order.end());
  std::vector<bool> dropped(items->size(), false);
  bool any = false;
  for (size_t i = 0; i < order.size(); ++i) {
    if (dropped[order[i].second]) continue;
    for (size_t j = i + 1; j < order.size() && order[j].first == order[i].first; ++j) {
      DictItem& first = (*items)[order[i].second];
      DictItem& later = (*items)[order[j].second];
      if (dropped[order[j].second] || !Equal(first.first, later.first)) continue;
      first.second = later.second;
      dropped[order[j].second] = any = true;
    }
  }
  if (!any) return;
  size_t kept = 0;
  for (size_t i = 0; i < items->size(); ++i) {
    if (!dropped[i]) std::swap((*items)[kept++], (*items)[i]);
  }
  items->resize(kept);
}

bool EqualAt(const Value& a, const Value& b, int depth);

bool EqualItems(const std::vector<Value>& a, const std::vector<Value>& b, int depth) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!SameObject(a[i], b[i]) && !EqualAt(a[i], b[i], depth)) return false;
  }
  return true;
}

bool EqualDicts(const Value& a, const Value& b, int depth) {
  if (a.dict().size() != b.dict().size()) return false;
  for (const auto& [key, value] : a.dict()) {
    const Value* other = b.Find(key);
    if (other == nullptr) return false;
    if (!SameObject(value, *other) && !EqualAt(value, *other, depth)) return false;
  }
  return true;
}

// An integer and a double compare by their exact values.
bool EqualNumbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
  if (a.is_float() && b.is_float()) return a.number() == b.number();
  const double real = a.is_float() ? a.number() : b.number();
  const int64_t whole = a.is_float() ? b.integer() : a.integer();
  if (!(real >= -0x1p63 && real < 0x1p63) || real != std::floor(real)) return false;
  return static_cast<int64_t>(real) == whole;
}

bool EqualRanges(const RangeObject& a, const RangeObject& b) {
  if (a.size() != b.size()) return false;
  return a.size() == 0 || (a.start == b.start && (a.size() == 1 || a.step == b.step));
}

bool EqualViews(const Value& a, const Value& b, int depth) {
  const auto& view_a = a.As<DictViewObject>();
  const auto& view_b = b.As<DictViewObject>();
  if (view_a.part == DictPart::kValues || view_b.part == DictPart::kValues) return false;
  if (view_a.part != view_b.part) return view_a.dict.dict().empty() && view_b.dict.dict().empty();
  if (view_a.dict.dict().size() != view_b.dict.dict().size()) return false;
  if (view_a.part == DictPart::kItems) return EqualDicts(view_a.dict, view_b.dict, depth);
  return std::all_of(view_a.dict.dict().begin(), view_a.dict.dict().end(),
                     [&](const DictItem& item) { return view_b.dict.Find(item.first) != nullptr; });
}

bool EqualAt(const Value& a, const Value& b, int depth) {
  if (depth > kMaxCompareDepth) return false;
  if (a.is_number() && b.is_number()) return EqualNumbers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.string() == b.string();
    case Kind::kList:
    case Kind::kTuple:
      return EqualItems(a.list(), b.list(), depth + 1);
    case Kind::kDict:
      return EqualDicts(a, b, depth + 1);
    case Kind::kRange:
      return EqualRanges(a.As<RangeObject>(), b.As<RangeObject>());
    case Kind::kDictView:
      return SameObject(a, b) || EqualViews(a, b, depth + 1);
    case Kind::kMethod: {
      const auto& method_a = a.As<MethodObject>();
      const auto& method_b = b.As<MethodObject>();
      return method_a.name == method_b.name && SameObject(method_a.self, method_b.self);
    }
    default:
      return SameObject(a, b);
  }
}

uint64_t Mix(uint64_t seed, uint64_t value) {
  return (seed ^ value) * 0x9E3779B97F4A7C15u + (seed << 6) + (seed >> 3);
}

}  // namespace

void AddPart(const Value& part, Object* object) {
  object->nesting = std::max(object->nesting, part.nesting() + 1);
  object->weight = std::min(object->weight + part.weight(), kMaxWeight);
}

Value Value::Bool(bool value) {
  Value result(Kind::kBool);
  result.integer_ = value ? 1 : 0;
  return result;
}

Value Value::Int(int64_t value) {
  Value result(Kind::kInt);
  result.integer_ = value;
  return result;
}

Value Value::Float(double value) {
  Value result(Kind::kFloat);
  result.number_ = value;
  return result;
}

Value Value::String(std::string text) { return MakeString(std::move(text), /*markup=*/false); }
Value Value::Markup(std::string text) { return MakeString(std::move(text), /*markup=*/true); }
Value Value::List(std::vector<Value> items) { return MakeSequence(Kind::kList, std::move(items)); }

Value Value::Tuple(std::vector<Value> items) {
  return MakeSequence(Kind::kTuple, std::move(items));
}

Value Value::Dict(std::vector<DictItem> items) {
  auto object = std::make_shared<DictObject>();
  if (items.size() > 1) MergeEqualKeys(&items);
  object->nesting = 1;
  for (const auto& [key, value] : items) {
    AddPart(key, object.get());
    AddPart(value, object.get());
  }
  object->items = std::move(items);
  if (object->items.size() > kIndexedItems) {
    object->index.reserve(object->items.size());
    for (size_t i = 0; i < object->items.size(); ++i) {
      object->index.emplace_back(HashOf(object->items[i].first), static_cast<uint32_t>(i));
    }
    std::sort(object->index.begin(), object->index.end());
  }
  return FromObject(Kind::kDict, std::move(object));
}

Value Value::Dict(std::vector<std::pair<std::string, Value>> items) {
  std::vector<DictItem> converted;
  converted.reserve(items.size());
  for (auto& [key, value] : items) {
    converted.emplace_back(String(std::move(key)), std::move(value));
  }
  return Dict(std::move(converted));
}

Value Value::FromObject(Kind kind, std::shared_ptr<Object> object) {
  Value result(kind);
  result.object_ = std::move(object);
  return result;
}

double Value::number() const { return is_float() ? number_ : static_cast<double>(integer_); }

const std::string& Value::string() const {
  PENSTOCK_CHECK(is_string(), std::string(TypeName(*this)));
  return As<StringObject>().text;
}

bool Value::is_markup() const { return As<StringObject>().markup; }
int64_t Value::string_length() const { return As<StringObject>().length; }

const std::vector<Value>& Value::list() const {
  PENSTOCK_CHECK(is_sequence(), std::string(TypeName(*this)));
  return As<SequenceObject>().items;
}

const std::vector<DictItem>& Value::dict() const {
  PENSTOCK_CHECK(is_dict(), std::string(TypeName(*this)));
  return As<DictObject>().items;
}

const Value* Value::Find(const Value& key) const {
  const auto& dict = As<DictObject>();
  const size_t at = FindItem(dict, key);
  return at < dict.items.size() ? &dict.items[at].second : nullptr;
}

const Value* Value::Find(std::string_view key) const {
  const auto& dict = As<DictObject>();
  if (!dict.index.empty()) return Find(String(std::string(key)));
  for (const auto& [name, value] : dict.items) {
    if (name.is_string() && name.string() == key) return &value;
  }
  return nullptr;
}

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.is_markup() ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kFunction:
      return "function";
    case Kind::kMethod:
      return "method";
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kGenerator:
      return "generator";
    case Kind::kDictView:
      return "dict view";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
  }
  return "value";
}

bool Equal(const Value& a, const Value& b) { return EqualAt(a, b, 0); }

bool IsHashable(const Value& value) {
  if (value.is(Kind::kTuple)) {
    return std::all_of(value.list().begin(), value.list().end(), IsHashable);
  }
  return !value.is_list() && !value.is_dict() && !value.is(Kind::kDictView);
}

uint64_t HashOf(const Value& value) {
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInt:
      return Mix(1, static_cast<uint64_t>(value.integer()));
    case Kind::kFloat: {
      const double number = value.number();
      if (number >= -0x1p63 && number < 0x1p63 && number == std::floor(number)) {
        return Mix(1, static_cast<uint64_t>(static_cast<int64_t>(number)));
      }
      return Mix(2, std::hash<double>{}(number));
    }
    case Kind::kString:
      return Mix(3, std::hash<std::string_view>{}(value.string()));
    case Kind::kTuple: {
      uint64_t hash = 4;
      for (const Value& item : value.list()) hash = Mix(hash, HashOf(item));
      return hash;
    }
    case Kind::kRange: {
      const auto& range = value.As<RangeObject>();
      return Mix(5, static_cast<uint64_t>(range.size()));
    }
    case Kind::kMethod:
      return 6;
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return static_cast<uint64_t>(value.kind());
    default:
      return Mix(7, std::hash<const void*>{}(value.object()));
  }
}

bool SameObject(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kMissing:
    case Kind::kNone:
      return true;
    case Kind::kBool:
    case Kind::kInt:
      return a.integer() == b.integer();
    case Kind::kFloat:
      return false;
    default:
      return a.object() == b.object();
  }
}

}  // namespace penstock::jinja
