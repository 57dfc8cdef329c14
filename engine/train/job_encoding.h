// How a job turns its data into tokens: the tokenizer, the chat template and the rules that its
// spec and its model's directory name.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/dataset.h"
#include "engine/data/example_encoder.h"
#include "engine/engine.h"
#include "engine/tokenizer/model_tokenizer.h"
#include "engine/train/model_input.h"

namespace penstock {

class JobEncoding {
 public:
  // MODEL_INVALID / MODEL_UNSUPPORTED for a tokenizer that cannot be used, one with more ids than
  // the model has embedding rows included; DATA_INVALID for a chat template that cannot be used
  // or is missing. The model's directory was read with the model and may be gone.
  static absl::StatusOr<std::unique_ptr<JobEncoding>> Create(const TrainConfig& config,
                                                             const ModelInput& model);

  const ExampleEncoder& encoder() const { return *encoder_; }

  // For people: the text of the ids, always UTF-8. Ids that came as ids stay numbers where the
  // model's directory has no tokenizer.
  std::string Decode(std::span<const int32_t> ids) const;

  // The template of the job's conversations; null if it needs none.
  const ChatTemplate* chat_template() const { return chat_ ? &chat_->chat_template : nullptr; }

  // What was chosen, a line each, for the job's log.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  JobEncoding() = default;
  absl::Status ChooseTokenizer(const TrainConfig& config, const ModelInput& model);
  absl::Status ChooseTemplate(const TrainConfig& config, const ModelInput& model);

  std::unique_ptr<ModelTokenizer> model_tokenizer_;
  ByteTokenizer byte_tokenizer_;
  bool decodes_bytes_ = false;
  std::optional<ChatSetup> chat_;
  std::optional<ExampleEncoder> encoder_;
  std::vector<std::string> notes_;
};

struct OpenDataOptions {
  int threads = 1;
  DataProgress progress = nullptr;
  int64_t max_documents = std::numeric_limits<int64_t>::max();  // JobDataArgs::max_documents
};

// Opens, and tokenizes if need be, what the job trains and evaluates on.
absl::StatusOr<JobData> OpenJobData(const TrainConfig& config, const ModelInput& model,
                                    const JobEncoding& encoding, OpenDataOptions options);

}  // namespace penstock
