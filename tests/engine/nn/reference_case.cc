#include "tests/engine/nn/reference_case.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/train/rooted_file.h"
#include "engine/train/safetensors.h"

namespace penstock {
namespace {

constexpr int64_t kMaxTextBytes = 1 << 16;

absl::StatusOr<std::string> ReferenceRoot() {
  const char* testdata = std::getenv("PENSTOCK_TESTDATA");
  if (testdata == nullptr) {
    return absl::NotFoundError(
        "PENSTOCK_TESTDATA is not set; run this test with ctest or set it to tests/testdata");
  }
  return absl::StrCat(testdata, "/reference");
}

template <typename T>
absl::Status ReadTensor(const ReadableFile& file, const StoredTensor& tensor, std::vector<T>& out) {
  if (tensor.bytes % sizeof(T) != 0) return absl::InvalidArgumentError(tensor.name);
  out.resize(tensor.bytes / sizeof(T));
  return file.ReadAt(tensor.begin, std::as_writable_bytes(std::span(out)));
}

absl::Status ReadExpected(const ReadableFile& file, ReferenceCase& reference) {
  const std::map<std::string, std::vector<int32_t>*, std::less<>> integers = {
      {"ids", &reference.ids},
      {"position_ids", &reference.position_ids},
      {"labels", &reference.labels},
      {"document_starts", &reference.document_starts}};
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<StoredTensor> tensors, ReadSafetensorsHeader(file));
  size_t integers_read = 0;
  for (const StoredTensor& tensor : tensors) {
    const auto integer = integers.find(tensor.name);
    const std::string_view dtype = integer == integers.end() ? "F32" : "I32";
    if (tensor.dtype != dtype) {
      return absl::InvalidArgumentError(absl::StrCat(tensor.name, " is ", tensor.dtype));
    }
    if (integer != integers.end()) {
      PENSTOCK_RETURN_IF_ERROR(ReadTensor(file, tensor, *integer->second));
      ++integers_read;
    } else {
      PENSTOCK_RETURN_IF_ERROR(ReadTensor(file, tensor, reference.values[tensor.name]));
    }
  }
  if (integers_read != integers.size()) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), " lacks ids, labels or starts"));
  }
  return absl::OkStatus();
}

absl::Status ReadWeights(const ReadableFile& file, ReferenceCase& reference) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<StoredTensor> tensors, ReadSafetensorsHeader(file));
  for (const StoredTensor& tensor : tensors) {
    if (tensor.dtype != "F32") return absl::InvalidArgumentError(tensor.name);
    PENSTOCK_RETURN_IF_ERROR(ReadTensor(file, tensor, reference.weights[tensor.name]));
  }
  return absl::OkStatus();
}

absl::Status ReadHyperParameters(const std::string& text, ReferenceCase& reference) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("case.json is not a JSON object");
  const std::pair<const char*, double*> numbers[] = {{"learning_rate", &reference.learning_rate},
                                                     {"beta1", &reference.beta1},
                                                     {"beta2", &reference.beta2},
                                                     {"weight_decay", &reference.weight_decay},
                                                     {"max_norm", &reference.max_norm},
                                                     {"epsilon", &reference.epsilon},
                                                     {"wide_epsilon", &reference.wide_epsilon}};
  for (const auto& [key, number] : numbers) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_number()) {
      return absl::InvalidArgumentError(absl::StrCat("case.json has no number ", key));
    }
    *number = found->get<double>();
  }
  const auto steps = json.find("steps");
  if (steps == json.end() || !steps->is_number_integer()) {
    return absl::InvalidArgumentError("case.json has no integer steps");
  }
  reference.steps = steps->get<int64_t>();
  return absl::OkStatus();
}

}  // namespace

const std::vector<float>& ReferenceCase::value(std::string_view name) const {
  const auto found = values.find(name);
  PENSTOCK_CHECK(found != values.end(), std::string(name));
  return found->second;
}

std::vector<std::string> ReferenceCaseNames() {
  return {"llama2",
          "llama3",
          "llama3_rope_parameters",
          "llama_biases",
          "llama_linear",
          "llama_linear_rope_parameters",
          "mistral_full",
          "mistral_window",
          "qwen2_tied",
          "qwen2_window",
          "qwen3_bias_window",
          "qwen3_tied",
          "smollm2"};
}

absl::StatusOr<ReferenceCase> LoadReferenceCase(const std::string& name) {
  ReferenceCase reference;
  reference.name = name;
  PENSTOCK_ASSIGN_OR_RETURN(const std::string root, ReferenceRoot());
  reference.model_directory = absl::StrCat(root, "/", name);
  PENSTOCK_ASSIGN_OR_RETURN(const RootedDirectory directory,
                            RootedDirectory::Open(reference.model_directory));
  PENSTOCK_ASSIGN_OR_RETURN(const ReadableFile config, directory.OpenFile("config.json"));
  PENSTOCK_ASSIGN_OR_RETURN(reference.config_json, config.ReadAll(kMaxTextBytes));
  PENSTOCK_ASSIGN_OR_RETURN(const ReadableFile expected,
                            directory.OpenFile("expected.safetensors"));
  PENSTOCK_RETURN_IF_ERROR(ReadExpected(expected, reference));
  PENSTOCK_ASSIGN_OR_RETURN(const ReadableFile weights, directory.OpenFile("model.safetensors"));
  PENSTOCK_RETURN_IF_ERROR(ReadWeights(weights, reference));
  PENSTOCK_ASSIGN_OR_RETURN(const ReadableFile hyper, directory.OpenFile("case.json"));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, hyper.ReadAll(kMaxTextBytes));
  PENSTOCK_RETURN_IF_ERROR(ReadHyperParameters(text, reference));
  return reference;
}

}  // namespace penstock
