#include "engine/data/batch.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/base/units.h"

namespace penstock {
namespace {

// Starts are int32 and there is one more of them than tokens.
constexpr int64_t kMaxMicroBatchTokens = std::numeric_limits<int32_t>::max() - 1;

absl::Status CheckShape(const BatchStream::Args& args) {
  const auto refuse = [](const std::string& message) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kSpecInvalid, message);
  };
  const std::pair<const char*, int64_t> fields[] = {
      {"sequence_length", args.sequence_length},
      {"rows per micro-batch", args.rows_per_micro_batch},
      {"micro-batches per step", args.micro_batches_per_step}};
  for (const auto& [name, value] : fields) {
    if (value < 1) return refuse(absl::StrCat(name, " is ", value, ", 1 or more is wanted"));
  }
  if (args.sequence_length > kMaxMicroBatchTokens ||
      args.rows_per_micro_batch > kMaxMicroBatchTokens / args.sequence_length) {
    return refuse(absl::StrCat("a micro-batch of ", args.rows_per_micro_batch, " rows of ",
                               args.sequence_length, " tokens is over the limit of ",
                               kMaxMicroBatchTokens,
                               " tokens; take smaller micro-batches, and more of them"));
  }
  if (args.micro_batches_per_step >
      std::numeric_limits<int64_t>::max() / (2 * kMaxMicroBatchTokens)) {
    return refuse(absl::StrCat("micro-batches per step is ", args.micro_batches_per_step,
                               ", which no step can run; take fewer tokens per step"));
  }
  return absl::OkStatus();
}

}  // namespace

MicroBatchBuffer::MicroBatchBuffer(int64_t rows, int64_t sequence_length)
    : ids_(rows * sequence_length),
      positions_(ids_.size()),
      labels_(ids_.size()),
      starts_(ids_.size() + 1) {
  view_.ids = ids_;
  view_.positions = positions_;
  view_.labels = labels_;
}

int64_t MicroBatchBuffer::Bytes(int64_t rows, int64_t sequence_length) {
  return (4 * rows * sequence_length + 1) * static_cast<int64_t>(sizeof(int32_t));
}

absl::StatusOr<std::unique_ptr<BatchStream>> BatchStream::Create(const Args& args) {
  PENSTOCK_RETURN_IF_ERROR(CheckShape(args));
  if (args.dataset->documents() == 0) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid,
                 "the data has no documents: 0 rows give 0 steps; give more data");
  }
  return std::unique_ptr<BatchStream>(new BatchStream(args));
}

BatchStream::BatchStream(const Args& args) : args_(args) {
  lengths_.reserve(dataset().documents());
  for (int64_t d = 0; d < dataset().documents(); ++d) lengths_.push_back(dataset().Length(d));
  windows_ = CountWindows(lengths_, args.sequence_length);
  rows_per_step_ = args.rows_per_micro_batch * args.micro_batches_per_step;
  mixture_.emplace(MakeMixture());
  rows_per_epoch_ = mixture_->rows_per_epoch();
  steps_per_epoch_ = (rows_per_epoch_ - 1) / rows_per_step_ + 1;
}

Mixture BatchStream::MakeMixture() const {
  MixtureArgs mixture{.sequence_length = args_.sequence_length,
                      .packing = args_.packing,
                      .order = args_.order,
                      .seed = args_.seed};
  const std::span<const Dataset::Part> parts = dataset().parts();
  for (size_t p = 0; p < parts.size(); ++p) {
    const int64_t first = dataset().FirstDocument(static_cast<int64_t>(p));
    mixture.parts.push_back(
        {.first_document = first,
         .document_lengths = std::span(lengths_).subspan(first, parts[p].documents.size()),
         .weight = parts[p].weight});
  }
  return Mixture(std::move(mixture));
}

const EpochPlan& BatchStream::PlanOf(int64_t epoch) {
  if (epoch == plan_epoch_) return plan_;
  plan_ = {};  // first, so that two plans are never there at once
  plan_ = mixture_->MakePlan(epoch);
  plan_epoch_ = epoch;
  PENSTOCK_CHECK(plan_.rows() == rows_per_epoch_,
                 absl::StrCat("epoch ", epoch, ": ", plan_.rows(), " ", rows_per_epoch_));
  return plan_;
}

StepShape BatchStream::RowsOfStep(int64_t step) const {
  PENSTOCK_CHECK(step >= 0, absl::StrCat(step));
  StepShape shape;
  shape.epoch = step / steps_per_epoch_;
  shape.first_row = step % steps_per_epoch_ * rows_per_step_;
  shape.rows = std::min(rows_per_step_, rows_per_epoch_ - shape.first_row);
  shape.micro_batches = CeilDiv(shape.rows, args_.rows_per_micro_batch);
  return shape;
}

StepShape BatchStream::ShapeOfStep(int64_t step) {
  StepShape shape = RowsOfStep(step);
  const EpochPlan& plan = PlanOf(shape.epoch);
  for (int64_t row = shape.first_row; row < shape.first_row + shape.rows; ++row) {
    for (const Piece& piece : plan.Row(row)) {
      shape.real_tokens += piece.length;
      shape.labelled_tokens += dataset().LabelledTokens(piece.document, piece.start, piece.length);
    }
  }
  return shape;
}

void BatchStream::Fill(int64_t step, int64_t micro_batch, MicroBatchBuffer& buffer) {
  const StepShape shape = RowsOfStep(step);
  const int64_t rows = args_.rows_per_micro_batch;
  PENSTOCK_CHECK(micro_batch >= 0 && micro_batch < shape.micro_batches,
                 absl::StrCat("step ", step, " has no micro-batch ", micro_batch));
  PENSTOCK_CHECK(static_cast<int64_t>(buffer.ids_.size()) == rows * args_.sequence_length,
                 absl::StrCat(buffer.ids_.size()));
  const EpochPlan& plan = PlanOf(shape.epoch);
  buffer.view_.labelled_tokens = 0;
  buffer.view_.real_tokens = 0;
  segments_ = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row_of_step = micro_batch * rows + r;
    const std::span<const Piece> pieces = row_of_step < shape.rows
                                              ? plan.Row(shape.first_row + row_of_step)
                                              : std::span<const Piece>();
    FillRow(pieces, r * args_.sequence_length, buffer);
  }
  buffer.starts_[segments_] = static_cast<int32_t>(buffer.ids_.size());
  buffer.view_.document_starts = std::span(buffer.starts_).first(segments_ + 1);
}

void BatchStream::FillRow(std::span<const Piece> pieces, int64_t first_token,
                          MicroBatchBuffer& buffer) {
  const int64_t row_end = first_token + args_.sequence_length;
  int64_t at = first_token;
  const auto begin_segment = [&](int64_t length) {
    buffer.starts_[segments_++] = static_cast<int32_t>(at);
    std::iota(buffer.positions_.begin() + at, buffer.positions_.begin() + at + length, 0);
  };
  for (const Piece& piece : pieces) {
    begin_segment(piece.length);
    const std::span<const int32_t> document = dataset().Ids(piece.document);
    std::copy_n(document.begin() + piece.start, piece.length, buffer.ids_.begin() + at);
    for (int64_t i = 0; i < piece.length; ++i) {
      const int64_t position = piece.start + i;
      const bool labelled = dataset().HasLabel(piece.document, position);
      buffer.labels_[at + i] = labelled ? document[position + 1] : kIgnoreLabel;
      buffer.view_.labelled_tokens += labelled ? 1 : 0;
    }
    buffer.view_.real_tokens += piece.length;
    at += piece.length;
  }
  if (at == row_end) return;
  begin_segment(row_end - at);
  std::fill(buffer.ids_.begin() + at, buffer.ids_.begin() + row_end, kPadId);
  std::fill(buffer.labels_.begin() + at, buffer.labels_.begin() + row_end, kIgnoreLabel);
}

std::vector<int64_t> BatchStream::DocumentsOfStep(int64_t step) {
  const StepShape shape = RowsOfStep(step);
  const EpochPlan& plan = PlanOf(shape.epoch);
  std::vector<int64_t> documents;
  for (int64_t row = shape.first_row; row < shape.first_row + shape.rows; ++row) {
    for (const Piece& piece : plan.Row(row)) documents.push_back(piece.document);
  }
  std::sort(documents.begin(), documents.end());
  documents.erase(std::unique(documents.begin(), documents.end()), documents.end());
  return documents;
}

}  // namespace penstock
