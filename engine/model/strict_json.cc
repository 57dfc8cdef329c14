#include "engine/model/strict_json.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/observed_chars.h"
#include "engine/base/status.h"
#include "engine/base/units.h"

namespace penstock {
namespace {

using nlohmann::json;

// Builds the value and stops at the first thing that is refused. The member names are those
// that nlohmann's SAX interface asks for.
template <typename Json>
class StrictBuilder : public Json::json_sax_t {
 public:
  using typename Json::json_sax_t::binary_t;
  using typename Json::json_sax_t::number_float_t;
  using typename Json::json_sax_t::number_integer_t;
  using typename Json::json_sax_t::number_unsigned_t;
  using typename Json::json_sax_t::string_t;

  // `offset` is where the parser is.
  StrictBuilder(const JsonLimits& limits, const int64_t* offset)
      : limits_(limits), offset_(offset) {}

  Json& root() { return root_; }
  const JsonProblem& problem() const { return problem_; }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return Refuse("binary value"); }

  bool start_object(std::size_t) override { return Push(Json::object()); }
  bool start_array(std::size_t) override { return Push(Json::array()); }
  bool end_object() override { return Pop(); }
  bool end_array() override { return Pop(); }

  bool key(string_t& name) override {
    if (open_.back()->contains(name)) {
      return Refuse(absl::StrCat("key \"", name.substr(0, 100), "\" appears twice"));
    }
    if (static_cast<int64_t>(open_.back()->size()) >= limits_.max_object_keys) {
      return Refuse(absl::StrCat("more than ", limits_.max_object_keys, " keys in one object"));
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: what": keep "what".
    std::string what = error.what();
    if (const size_t cut = what.find(": "); cut != std::string::npos) what.erase(0, cut + 2);
    return RefuseAt(static_cast<int64_t>(position) - 1, what.substr(0, 200));
  }

 private:
  Json* Place(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_array()) return &open_.back()->emplace_back(std::move(value));
    return &((*open_.back())[key_] = std::move(value));
  }
  bool Add(Json value) {
    if (++values_ > limits_.max_values) {
      return Refuse(absl::StrCat("more than ", limits_.max_values, " values"));
    }
    Place(std::move(value));
    return true;
  }
  bool Push(Json value) {
    if (static_cast<int>(open_.size()) >= limits_.max_depth) {
      return Refuse(absl::StrCat("nested deeper than ", limits_.max_depth, " levels"));
    }
    if (++values_ > limits_.max_values) {
      return Refuse(absl::StrCat("more than ", limits_.max_values, " values"));
    }
    open_.push_back(Place(std::move(value)));
    return true;
  }
  bool Pop() {
    open_.pop_back();
    return true;
  }
  bool Refuse(std::string what) { return RefuseAt(*offset_, std::move(what)); }
  bool RefuseAt(int64_t offset, std::string what) {
    if (problem_.what.empty()) problem_ = {offset, std::move(what)};
    return false;
  }

  const JsonLimits& limits_;
  const int64_t* offset_;
  int64_t values_ = 0;
  Json root_;
  std::vector<Json*> open_;  // the containers that are being filled, outermost first
  std::string key_;
  JsonProblem problem_;
};

// Counts what the parser has read: its events carry no position.
struct ReadOffset {
  int64_t bytes = 0;
  void Pass(char) { ++bytes; }
};

template <typename Json>
std::optional<JsonProblem> Parse(std::string_view text, const JsonLimits& limits, Json& value) {
  ReadOffset offset;
  StrictBuilder<Json> builder(limits, &offset.bytes);
  const ObservedChars begin(text.data(), &offset), end(text.data() + text.size(), &offset);
  if (!Json::sax_parse(begin, end, &builder)) return builder.problem();
  value = std::move(builder.root());
  return std::nullopt;
}

}  // namespace

std::string DescribeForeignContent(absl::string_view bytes) {
  if (bytes.empty()) return "an empty file; download it again";
  if (absl::StartsWith(bytes, "version https://git-lfs")) {
    return "a Git LFS pointer, not the file itself; fetch it with `git lfs pull`";
  }
  const std::string start =
      absl::AsciiStrToLower(absl::StripLeadingAsciiWhitespace(bytes.substr(0, 256)));
  if (absl::StartsWith(start, "<!doctype") || absl::StartsWith(start, "<html") ||
      absl::StartsWith(start, "<?xml")) {
    return "a web page (perhaps a login or error page); download the file again";
  }
  if (absl::StartsWith(bytes, "PK\x03\x04")) {
    return "a zip archive (a PyTorch .bin file?); convert the model to safetensors";
  }
  if (bytes.size() >= 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5) {
    return "a Python pickle (a PyTorch .bin file?); convert the model to safetensors";
  }
  if (absl::StartsWith(bytes, "GGUF")) {
    return "a GGUF file; use the Hugging Face safetensors release of the model";
  }
  return "";
}

absl::StatusOr<json> ParseStrictJson(absl::string_view text, absl::string_view what,
                                     const JsonLimits& limits, std::string_view error_reason) {
  const auto refuse = [&](absl::string_view problem) {
    return Error(absl::StatusCode::kInvalidArgument, error_reason, absl::StrCat(what, problem));
  };
  if (static_cast<int64_t>(text.size()) > limits.max_bytes) {
    return refuse(absl::StrCat(" has ", text.size(), " bytes, more than the limit of ",
                               FormatBytes(limits.max_bytes)));
  }
  json value;
  if (const auto problem = Parse<json>({text.data(), text.size()}, limits, value)) {
    if (const std::string foreign = DescribeForeignContent(text); !foreign.empty()) {
      return refuse(absl::StrCat(" is ", foreign));
    }
    return refuse(
        absl::StrCat(" is not valid JSON: at byte ", problem->offset + 1, ": ", problem->what));
  }
  return value;
}

std::optional<JsonProblem> ParseOrderedJson(std::string_view text, const JsonLimits& limits,
                                            nlohmann::ordered_json& value) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes) {
    return JsonProblem{0, absl::StrCat("has ", text.size(), " bytes, more than the limit of ",
                                       FormatBytes(limits.max_bytes))};
  }
  return Parse(text, limits, value);
}

}  // namespace penstock
