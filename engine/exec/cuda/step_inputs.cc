#include "engine/exec/cuda/step_inputs.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/labels.h"
#include "engine/base/status.h"
#include "engine/cuda/status.h"

namespace penstock {
namespace {

absl::Status Refuse(int64_t micro_batch, const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kInternal,
               absl::StrCat("micro-batch ", micro_batch, ": ", what));
}

// Every values[i] is in [least, limit).
absl::Status CheckRange(int64_t micro_batch, const char* name, const int32_t* values, int64_t count,
                        int64_t least, int64_t limit) {
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] >= least && values[i] < limit) continue;
    return Refuse(micro_batch, absl::StrCat(name, "[", i, "] is ", values[i], ", wanted ", least,
                                            " to ", limit - 1));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status StepInputs::Reserve(int64_t micro_batches) {
  if (micro_batches <= static_cast<int64_t>(views_.size())) return absl::OkStatus();
  const int64_t bytes = micro_batches * ints_per_batch() * static_cast<int64_t>(sizeof(int32_t));
  PENSTOCK_ASSIGN_OR_RETURN(staging_, cuda::AllocatePinned(bytes));
  PENSTOCK_ASSIGN_OR_RETURN(device_, cuda::DeviceMemory::Allocate(bytes));
  views_.resize(micro_batches);
  return absl::OkStatus();
}

absl::Status StepInputs::Check(int64_t index, const MicroBatchView& batch) const {
  const int64_t tokens = batch.tokens, documents = batch.num_documents;
  if (tokens < 0 || tokens > limits_.tokens_per_micro_batch || documents < 0 ||
      documents > limits_.tokens_per_micro_batch + 1) {
    return Refuse(index, absl::StrCat("has ", tokens, " tokens in ", documents,
                                      " documents, wanted at most ", limits_.tokens_per_micro_batch,
                                      " tokens and one document "
                                      "more than tokens"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckRange(index, "ids", batch.ids, tokens, 0, limits_.vocab_size));
  PENSTOCK_RETURN_IF_ERROR(
      CheckRange(index, "positions", batch.positions, tokens, 0, limits_.max_positions));
  PENSTOCK_RETURN_IF_ERROR(
      CheckRange(index, "labels", batch.labels, tokens, kIgnoreLabel, limits_.vocab_size));
  const int32_t* starts = batch.document_starts;
  if (starts[0] != 0 || starts[documents] != tokens ||
      !std::is_sorted(starts, starts + documents + 1)) {
    return Refuse(index, absl::StrCat("document_starts go from ", starts[0], " to ",
                                      starts[documents], ", wanted ascending from 0 to ", tokens));
  }
  return absl::OkStatus();
}

void StepInputs::Stage(int64_t index, const MicroBatchView& batch) {
  const int64_t room = limits_.tokens_per_micro_batch;
  const int64_t at = index * ints_per_batch();
  int32_t* to = reinterpret_cast<int32_t*>(staging_.get()) + at;
  const int32_t* device = reinterpret_cast<const int32_t*>(device_.data()) + at;
  std::copy_n(batch.ids, batch.tokens, to);
  std::copy_n(batch.positions, batch.tokens, to + room);
  std::copy_n(batch.labels, batch.tokens, to + 2 * room);
  std::copy_n(batch.document_starts, batch.num_documents + 1, to + 3 * room);
  views_[index] = {.ids = device,
                   .positions = device + room,
                   .labels = device + 2 * room,
                   .document_starts = device + 3 * room,
                   .num_documents = batch.num_documents,
                   .tokens = batch.tokens,
                   .host_document_starts = to + 3 * room};
}

absl::Status StepInputs::Upload(cudaStream_t stream, std::span<const MicroBatchView> batches) {
  if (batches.size() > views_.size()) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kInternal,
                 absl::StrCat("the step has ", batches.size(), " micro-batches, room is for ",
                              views_.size()));
  }
  for (size_t i = 0; i < batches.size(); ++i) {
    PENSTOCK_RETURN_IF_ERROR(Check(static_cast<int64_t>(i), batches[i]));
  }
  for (size_t i = 0; i < batches.size(); ++i) Stage(static_cast<int64_t>(i), batches[i]);
  const int64_t ints = static_cast<int64_t>(batches.size()) * ints_per_batch();
  return cuda::CudaStatus(cudaMemcpyAsync(device_.data(), staging_.get(), ints * sizeof(int32_t),
                                          cudaMemcpyHostToDevice, stream),
                          "upload of the step's input");
}

}  // namespace penstock
