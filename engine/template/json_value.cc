#include "engine/template/json_value.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"

namespace penstock::jinja {
namespace {

using nlohmann::json;

// Builds the value and stops at the first thing that is refused. The member names are those that
// nlohmann's SAX interface asks for.
class ValueBuilder : public json::json_sax_t {
 public:
  explicit ValueBuilder(int max_depth) : max_depth_(max_depth) {}

  Value& root() { return root_; }
  const std::string& problem() const { return problem_; }

  bool null() override { return Add(Value::None()); }
  bool boolean(bool value) override { return Add(Value::Bool(value)); }
  bool number_integer(number_integer_t value) override { return Add(Value::Int(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(INT64_MAX))
      return RefuseInteger(absl::StrCat(value));
    return Add(Value::Int(static_cast<int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == std::string::npos) return RefuseInteger(text.substr(0, 40));
    return Add(Value::Float(value));
  }
  bool string(string_t& value) override { return Add(Value::String(std::move(value))); }
  bool binary(binary_t&) override { return Refuse("binary value"); }

  bool start_object(std::size_t) override { return Push(); }
  bool start_array(std::size_t) override { return Push(); }
  bool end_array() override {
    Value list = Value::List(std::move(open_.back().values));
    open_.pop_back();
    return Add(std::move(list));
  }
  bool end_object() override {
    Container object = std::move(open_.back());
    open_.pop_back();
    std::vector<std::string> sorted = object.keys;
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end()) {
      return Refuse(absl::StrCat("key \"", twice->substr(0, 100), "\" appears twice"));
    }
    std::vector<std::pair<std::string, Value>> items;
    items.reserve(object.keys.size());
    for (size_t i = 0; i < object.keys.size(); ++i) {
      items.emplace_back(std::move(object.keys[i]), std::move(object.values[i]));
    }
    return Add(Value::Dict(std::move(items)));
  }
  bool key(string_t& name) override {
    open_.back().keys.push_back(std::move(name));
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: what": keep "what".
    std::string what = error.what();
    if (const size_t cut = what.find(": "); cut != std::string::npos) what.erase(0, cut + 2);
    return Refuse(absl::StrCat("at byte ", position, ": ", what.substr(0, 200)));
  }

 private:
  struct Container {
    std::vector<std::string> keys;  // of an object
    std::vector<Value> values;
  };

  bool Add(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else {
      open_.back().values.push_back(std::move(value));
    }
    return true;
  }
  bool Push() {
    if (static_cast<int>(open_.size()) >= max_depth_) {
      return Refuse(absl::StrCat("nested deeper than ", max_depth_, " levels"));
    }
    open_.emplace_back();
    return true;
  }
  bool RefuseInteger(const std::string& text) {
    return Refuse(absl::StrCat("the integer ", text, " is beyond 64 bits; write it as a string"));
  }
  bool Refuse(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
    return false;
  }

  const int max_depth_;
  Value root_;
  std::vector<Container> open_;  // outermost first
  std::string problem_;
};

}  // namespace

absl::StatusOr<Value> ParseJsonValue(absl::string_view text, absl::string_view what,
                                     const JsonLimits& limits, std::string_view error_reason) {
  const auto refuse = [&](absl::string_view problem) {
    return Error(absl::StatusCode::kInvalidArgument, error_reason, absl::StrCat(what, problem));
  };
  if (static_cast<int64_t>(text.size()) > limits.max_bytes) {
    return refuse(absl::StrCat(" has ", text.size(), " bytes, more than the limit of ",
                               FormatBytes(limits.max_bytes)));
  }
  ValueBuilder builder(limits.max_depth);
  if (!json::sax_parse(text.begin(), text.end(), &builder)) {
    if (const std::string foreign = DescribeForeignContent(text); !foreign.empty()) {
      return refuse(absl::StrCat(" is ", foreign));
    }
    return refuse(absl::StrCat(" is not valid JSON: ", builder.problem()));
  }
  return std::move(builder.root());
}

}  // namespace penstock::jinja
