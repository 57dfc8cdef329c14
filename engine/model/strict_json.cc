#include "engine/model/strict_json.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"

namespace penstock {
namespace {

using nlohmann::json;

// Builds the value and stops at the first thing that is refused. The member names are those
// that nlohmann's SAX interface asks for.
class StrictBuilder : public json::json_sax_t {
 public:
  explicit StrictBuilder(int max_depth) : max_depth_(max_depth) {}

  json& root() { return root_; }
  const std::string& problem() const { return problem_; }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return Refuse("binary value"); }

  bool start_object(std::size_t) override { return Push(json::object()); }
  bool start_array(std::size_t) override { return Push(json::array()); }
  bool end_object() override { return Pop(); }
  bool end_array() override { return Pop(); }

  bool key(string_t& name) override {
    if (open_.back()->contains(name)) {
      return Refuse(absl::StrCat("key \"", name.substr(0, 100), "\" appears twice"));
    }
    key_ = std::move(name);
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
  json* Place(json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_array()) return &open_.back()->emplace_back(std::move(value));
    return &((*open_.back())[key_] = std::move(value));
  }
  bool Add(json value) {
    Place(std::move(value));
    return true;
  }
  bool Push(json value) {
    if (static_cast<int>(open_.size()) >= max_depth_) {
      return Refuse(absl::StrCat("nested deeper than ", max_depth_, " levels"));
    }
    open_.push_back(Place(std::move(value)));
    return true;
  }
  bool Pop() {
    open_.pop_back();
    return true;
  }
  bool Refuse(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
    return false;
  }

  const int max_depth_;
  json root_;
  std::vector<json*> open_;  // the containers that are being filled, outermost first
  std::string key_;
  std::string problem_;
};

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
  StrictBuilder builder(limits.max_depth);
  if (!json::sax_parse(text.begin(), text.end(), &builder)) {
    if (const std::string foreign = DescribeForeignContent(text); !foreign.empty()) {
      return refuse(absl::StrCat(" is ", foreign));
    }
    return refuse(absl::StrCat(" is not valid JSON: ", builder.problem()));
  }
  return std::move(builder.root());
}

}  // namespace penstock
