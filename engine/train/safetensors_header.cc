// The JSON of a safetensors header, read as a stream of events into the table of tensors. No
// tree is built: memory stays within a small multiple of the header, whatever it holds.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "engine/base/status.h"
#include "engine/train/safetensors.h"
#include "nlohmann/json.hpp"

namespace penstock {
namespace {

using nlohmann::json;

// Bits per element of every type the format knows.
constexpr std::array<std::pair<absl::string_view, int64_t>, 18> kDtypeBits = {{
    {"BOOL", 8},
    {"U8", 8},
    {"I8", 8},
    {"F8_E5M2", 8},
    {"F8_E4M3", 8},
    {"F8_E8M0", 8},
    {"I16", 16},
    {"U16", 16},
    {"F16", 16},
    {"BF16", 16},
    {"I32", 32},
    {"U32", 32},
    {"F32", 32},
    {"F64", 64},
    {"I64", 64},
    {"U64", 64},
    {"C64", 64},
    {"F4", 4},
}};

std::optional<int64_t> BitsOf(absl::string_view dtype) {
  for (const auto& [name, bits] : kDtypeBits) {
    if (name == dtype) return bits;
  }
  return std::nullopt;
}

std::string Shown(absl::string_view name) {
  std::string text;
  for (const char c : name.substr(0, 100)) text += c >= 0x20 && c != 0x7f ? c : '?';
  return absl::StrCat("\"", text, name.size() > 100 ? "...\"" : "\"");
}

// Where the events are: {"name": {"shape": [ ...
//                       ^top     ^tensor   ^list
enum class Level : uint8_t { kStart, kTop, kTensor, kList, kMetadata, kEnd };
enum class Field : uint8_t { kDtype, kShape, kOffsets };

class HeaderBuilder : public json::json_sax_t {
 public:
  std::vector<StoredTensor>& tensors() { return tensors_; }
  const std::string& problem() const { return problem_; }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("true or false"); }
  bool number_float(number_float_t, const string_t& text) override {
    return Unexpected(absl::StrCat("the number ", text.substr(0, 40)));
  }
  bool number_integer(number_integer_t value) override {  // negative ones only
    return Unexpected(absl::StrCat("the number ", value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (level_ != Level::kList) return Unexpected(absl::StrCat("the number ", value));
    if (value > static_cast<uint64_t>(INT64_MAX)) {
      return Refuse(absl::StrCat("has the number ", value, ", which is too large"));
    }
    if (static_cast<int64_t>(list_.size()) >= kMaxTensorRank) {
      return Refuse(absl::StrCat("has a list of more than ", kMaxTensorRank, " numbers"));
    }
    list_.push_back(static_cast<int64_t>(value));
    return true;
  }
  bool string(string_t& value) override {
    if (level_ == Level::kMetadata) return true;
    if (level_ != Level::kTensor || field_ != Field::kDtype) return Unexpected("a string");
    if (!BitsOf(value)) return Refuse(absl::StrCat("has the unknown dtype ", Shown(value)));
    tensor_.dtype = std::move(value);
    return true;
  }
  bool binary(binary_t&) override { return Unexpected("binary data"); }

  bool start_object(std::size_t) override {
    if (level_ == Level::kStart) return Enter(Level::kTop);
    if (level_ != Level::kTop) return Unexpected("an object");
    seen_.fill(false);
    return Enter(in_metadata_ ? Level::kMetadata : Level::kTensor);
  }
  bool end_object() override {
    if (level_ == Level::kTop) return Enter(Level::kEnd);
    if (level_ == Level::kTensor) {
      for (const bool seen : seen_) {
        if (!seen) return Refuse("lacks one of dtype, shape and data_offsets");
      }
      tensors_.push_back(std::move(tensor_));
    }
    return Enter(Level::kTop);
  }
  bool start_array(std::size_t) override {
    if (level_ != Level::kTensor || field_ == Field::kDtype) return Unexpected("a list");
    list_.clear();
    return Enter(Level::kList);
  }
  bool end_array() override {
    if (field_ == Field::kShape) {
      tensor_.shape = list_;
    } else if (list_.size() != 2) {
      return Refuse(absl::StrCat("has ", list_.size(), " data_offsets; 2 are needed"));
    } else if (list_[0] > list_[1]) {
      return Refuse(absl::StrCat("has data_offsets [", absl::StrJoin(list_, ", "),
                                 "], which end before they begin"));
    } else {
      tensor_.begin = list_[0];
      tensor_.bytes = list_[1] - list_[0];
    }
    return Enter(Level::kTensor);
  }

  bool key(string_t& name) override {
    if (level_ == Level::kTop) return TopKey(name);
    if (level_ == Level::kMetadata) {
      return metadata_keys_.insert(name).second ||
             Refuse(absl::StrCat("has the key ", Shown(name), " twice"));
    }
    return TensorKey(name);
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    if (problem_.empty()) problem_ = absl::StrCat("is not valid JSON at byte ", position);
    return false;
  }

 private:
  bool Enter(Level level) {
    level_ = level;
    return true;
  }
  bool TopKey(string_t& name) {
    in_metadata_ = name == "__metadata__";
    tensor_ = {};
    tensor_.name = name.substr(0, kMaxTensorNameBytes);  // also for the messages below
    if (static_cast<int64_t>(name.size()) > kMaxTensorNameBytes) {
      return Refuse(absl::StrCat("has a name of ", name.size(), " bytes; at most ",
                                 kMaxTensorNameBytes, " are accepted"));
    }
    const bool clean = std::none_of(name.begin(), name.end(),
                                    [](unsigned char c) { return c < 0x20 || c == 0x7f; });
    if (name.empty() || !clean) return Refuse("has an empty name or control characters in it");
    return names_.insert(name).second || Refuse("appears twice");
  }
  bool TensorKey(const string_t& name) {
    if (name == "dtype") {
      field_ = Field::kDtype;
    } else if (name == "shape") {
      field_ = Field::kShape;
    } else if (name == "data_offsets") {
      field_ = Field::kOffsets;
    } else {
      return Refuse(absl::StrCat("has the unknown key ", Shown(name)));
    }
    bool& seen = seen_[static_cast<size_t>(field_)];
    return !std::exchange(seen, true) || Refuse(absl::StrCat("has ", name, " twice"));
  }
  bool Unexpected(absl::string_view what) {
    switch (level_) {
      case Level::kStart:
        return Refuse(absl::StrCat("is ", what, "; an object is needed"));
      case Level::kMetadata:
        return Refuse(absl::StrCat("holds ", what, "; only strings are allowed"));
      case Level::kTop:
        return Refuse(absl::StrCat("is ", what, "; an object is needed"));
      default:
        return Refuse(absl::StrCat("has ", what, " in place of its dtype, shape or data_offsets"));
    }
  }
  bool Refuse(absl::string_view problem) {
    const bool in_tensor = level_ != Level::kStart && !in_metadata_;
    problem_ = absl::StrCat(in_tensor      ? absl::StrCat("tensor ", Shown(tensor_.name), " ")
                            : in_metadata_ ? "__metadata__ "
                                           : "",
                            problem);
    return false;
  }

  Level level_ = Level::kStart;
  Field field_ = Field::kDtype;
  bool in_metadata_ = false;
  std::array<bool, 3> seen_{};  // by Field
  StoredTensor tensor_;
  std::vector<int64_t> list_;
  std::vector<StoredTensor> tensors_;
  absl::flat_hash_set<std::string> names_;
  absl::flat_hash_set<std::string> metadata_keys_;
  std::string problem_;
};

// Shape times element size, or nullopt if that is no whole number of bytes or overflows.
std::optional<int64_t> BytesOf(const StoredTensor& tensor) {
  int64_t elements = 1;
  for (const int64_t dim : tensor.shape) {
    if (__builtin_mul_overflow(elements, dim, &elements)) return std::nullopt;
  }
  int64_t bits = 0;
  if (__builtin_mul_overflow(elements, *BitsOf(tensor.dtype), &bits)) return std::nullopt;
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

// Empty if the tensors, sorted, cover [0, data_bytes) exactly.
std::string FindRangeProblem(const std::vector<StoredTensor>& tensors, int64_t data_bytes) {
  int64_t end = 0;
  for (const StoredTensor& tensor : tensors) {
    const std::string name = absl::StrCat("tensor ", Shown(tensor.name));
    const std::optional<int64_t> wanted = BytesOf(tensor);
    if (!wanted) {
      return absl::StrCat(name, " has shape [", absl::StrJoin(tensor.shape, ", "), "] of ",
                          tensor.dtype, ", whose size is no valid number of bytes");
    }
    if (*wanted != tensor.bytes) {
      return absl::StrCat(name, " has ", tensor.bytes, " bytes; its shape [",
                          absl::StrJoin(tensor.shape, ", "), "] of ", tensor.dtype, " needs ",
                          *wanted);
    }
    if (tensor.begin != end) {
      return absl::StrCat(name, " begins at byte ", tensor.begin, " of the data, ",
                          tensor.begin < end ? "inside the tensor before it" : "after a hole", "; ",
                          end, " is needed");
    }
    if (tensor.bytes > data_bytes - end) {
      return absl::StrCat(name, " ends at byte ", end + tensor.bytes, " of the data, which has ",
                          data_bytes, "; the file is cut off, download it again");
    }
    end += tensor.bytes;
  }
  if (end != data_bytes) {
    return absl::StrCat("the tensors take ", end, " bytes and ", data_bytes, " follow the header");
  }
  return "";
}

}  // namespace

absl::StatusOr<std::vector<StoredTensor>> ParseSafetensorsHeader(std::string_view text,
                                                                 std::string_view path,
                                                                 int64_t data_start,
                                                                 int64_t data_bytes) {
  const auto refuse = [&](const std::string& problem) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kModelInvalid,
                 absl::StrCat(std::string(path), ": safetensors header: ", problem),
                 {{"file", std::string(path)}});
  };
  if (text.empty() || text[0] != '{') return refuse("does not start with '{'");
  HeaderBuilder builder;
  if (!json::sax_parse(text.begin(), text.end(), &builder)) return refuse(builder.problem());
  std::vector<StoredTensor> tensors = std::move(builder.tensors());
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::tie(a.begin, a.bytes, a.name) < std::tie(b.begin, b.bytes, b.name);
  });
  if (const std::string problem = FindRangeProblem(tensors, data_bytes); !problem.empty()) {
    return refuse(problem);
  }
  for (StoredTensor& tensor : tensors) tensor.begin += data_start;
  return tensors;
}

}  // namespace penstock
