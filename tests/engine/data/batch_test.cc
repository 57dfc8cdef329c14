#include "engine/data/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/engine/data/data_test_util.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A copy of a micro-batch, to keep and compare.
struct Snapshot {
  std::vector<int32_t> ids, positions, labels, starts;
  int64_t labelled_tokens, real_tokens;
  friend bool operator==(const Snapshot&, const Snapshot&) = default;
};

Snapshot Copy(const MicroBatch& batch) {
  return {{batch.ids.begin(), batch.ids.end()},
          {batch.positions.begin(), batch.positions.end()},
          {batch.labels.begin(), batch.labels.end()},
          {batch.document_starts.begin(), batch.document_starts.end()},
          batch.labelled_tokens,
          batch.real_tokens};
}

class BatchStreamTest : public testing::Test {
 protected:
  std::shared_ptr<const Dataset> Data(const std::vector<std::vector<int32_t>>& rows) {
    return Dataset::All(CacheOfRows(dir_, rows));
  }
  static std::unique_ptr<BatchStream> Stream(const BatchStream::Args& args) {
    return Must(BatchStream::Create(args));
  }
  static std::vector<Snapshot> Step(BatchStream& stream, int64_t step) {
    MicroBatchBuffer buffer(stream.args().rows_per_micro_batch, stream.args().sequence_length);
    std::vector<Snapshot> batches;
    for (int64_t m = 0; m < stream.ShapeOfStep(step).micro_batches; ++m) {
      stream.Fill(step, m, buffer);
      batches.push_back(Copy(buffer.view()));
    }
    return batches;
  }
  TempDir dir_;
};

// What must hold for any micro-batch.
void CheckForm(const Snapshot& batch, int64_t rows, int64_t sequence_length) {
  ASSERT_EQ(static_cast<int64_t>(batch.ids.size()), rows * sequence_length);
  ASSERT_EQ(batch.starts.front(), 0);
  ASSERT_EQ(batch.starts.back(), rows * sequence_length);
  for (size_t s = 0; s + 1 < batch.starts.size(); ++s) {
    const int32_t begin = batch.starts[s], end = batch.starts[s + 1];
    ASSERT_LT(begin, end);
    ASSERT_EQ(begin / sequence_length, (end - 1) / sequence_length) << "crosses a row";
    for (int32_t i = begin; i < end; ++i) ASSERT_EQ(batch.positions[i], i - begin);
  }
  const auto labelled = std::count_if(batch.labels.begin(), batch.labels.end(),
                                      [](int32_t label) { return label != kIgnoreLabel; });
  ASSERT_EQ(labelled, batch.labelled_tokens);
}

// BC-22
TEST_F(BatchStreamTest, PackedDocumentsAreIsolated) {
  // A exactly fills a row; B and C share one, with one token of padding; D is cut.
  const auto data = Data({{1, 2, 3, 4, 5, 6, 7, 8},
                          {11, 12, 13},
                          {21, 22, 23, 24},
                          {31, 32, 33, 34, 35, 36, 37, 38, 39, 40}});
  const auto stream = Stream({.dataset = data,
                              .sequence_length = 8,
                              .rows_per_micro_batch = 4,
                              .micro_batches_per_step = 1,
                              .order = RowOrder::kSequential});
  const std::vector<Snapshot> step = Step(*stream, 0);
  ASSERT_EQ(step.size(), 1u);
  EXPECT_THAT(step[0].ids, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 31, 32, 33, 34, 35, 36, 37, 38, 21,
                                       22, 23, 24, 11, 12, 13, 0, 39, 40, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(step[0].labels,
              ElementsAre(2, 3, 4, 5, 6, 7, 8, -1, 32, 33, 34, 35, 36, 37, 38, 39, 22, 23, 24, -1,
                          12, 13, -1, -1, 40, -1, -1, -1, -1, -1, -1, -1));
  EXPECT_THAT(step[0].positions, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1,
                                             2, 3, 0, 1, 2, 0, 0, 1, 0, 1, 2, 3, 4, 5));
  EXPECT_THAT(step[0].starts, ElementsAre(0, 8, 16, 20, 23, 24, 26, 32));
  EXPECT_EQ(step[0].labelled_tokens, 21);
  EXPECT_EQ(step[0].real_tokens, 25);
}

TEST_F(BatchStreamTest, EveryPackingLabelsTheSameTokens) {
  std::mt19937 random(1);
  std::vector<int64_t> lengths(200);
  for (int64_t& length : lengths) length = 1 + random() % 70;
  const auto data = Data(RowsOfLengths(lengths));
  std::map<Packing, std::vector<std::pair<int32_t, int32_t>>> pairs;
  for (const Packing packing : {Packing::kPacked, Packing::kPadded, Packing::kWrapped}) {
    const auto stream = Stream({.dataset = data,
                                .sequence_length = 32,
                                .rows_per_micro_batch = 3,
                                .micro_batches_per_step = 2,
                                .packing = packing});
    for (int64_t step = 0; step < stream->steps_per_epoch(); ++step) {
      for (const Snapshot& batch : Step(*stream, step)) {
        for (size_t i = 0; i < batch.ids.size(); ++i) {
          if (batch.labels[i] != kIgnoreLabel) {
            pairs[packing].push_back({batch.ids[i], batch.labels[i]});
          }
        }
      }
    }
    std::sort(pairs[packing].begin(), pairs[packing].end());
  }
  EXPECT_EQ(pairs[Packing::kPacked], pairs[Packing::kPadded]);
  EXPECT_EQ(pairs[Packing::kPacked], pairs[Packing::kWrapped]);
  // Ids count up within a document, so every pair is a token and its successor.
  for (const auto& [id, label] : pairs[Packing::kPacked]) ASSERT_EQ(label, id + 1);
  EXPECT_EQ(static_cast<int64_t>(pairs[Packing::kPacked].size()), data->labelled_tokens());
}

// No token lost or used twice in any epoch, and the totals of a step known before it.
TEST_F(BatchStreamTest, EveryEpochUsesEveryTokenAndEveryLabelOnce) {
  std::mt19937 random(2);
  for (int round = 0; round < 25; ++round) {
    std::vector<int64_t> lengths(1 + random() % 60);
    for (int64_t& length : lengths) length = 1 + random() % 50;
    lengths[0] += 1;  // at least one label
    const auto data = Data(RowsOfLengths(lengths));
    const int64_t rows = 1 + random() % 4, length = 1 + random() % 40;
    const auto stream = Stream({.dataset = data,
                                .sequence_length = length,
                                .rows_per_micro_batch = rows,
                                .micro_batches_per_step = 1 + static_cast<int64_t>(random() % 4),
                                .packing = static_cast<Packing>(round % 3),
                                .seed = random()});
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<int32_t> labels;
      int64_t real_tokens = 0;
      for (int64_t i = 0; i < stream->steps_per_epoch(); ++i) {
        const int64_t step = epoch * stream->steps_per_epoch() + i;
        const StepShape shape = stream->ShapeOfStep(step);
        ASSERT_EQ(shape.epoch, epoch);
        int64_t labelled_in_step = 0, real_in_step = 0;
        for (const Snapshot& batch : Step(*stream, step)) {
          CheckForm(batch, rows, length);
          for (const int32_t label : batch.labels) {
            if (label != kIgnoreLabel) labels.push_back(label);
          }
          labelled_in_step += batch.labelled_tokens;
          real_in_step += batch.real_tokens;
        }
        ASSERT_EQ(shape.labelled_tokens, labelled_in_step);
        ASSERT_EQ(shape.real_tokens, real_in_step);
        real_tokens += real_in_step;
      }
      EXPECT_EQ(real_tokens, data->tokens());
      ASSERT_EQ(static_cast<int64_t>(labels.size()), data->labelled_tokens());
      std::sort(labels.begin(), labels.end());
      EXPECT_EQ(std::adjacent_find(labels.begin(), labels.end()), labels.end());
    }
  }
}

TEST_F(BatchStreamTest, LabelsFollowTheMask) {
  const auto cache =
      Must(OpenIn(dir_, JsonlSource({dir_.Write("r",
                                                "{\"ids\":[5,6,7,8],\"labels\":[-100,-100,7,8]}\n"
                                                "{\"ids\":[9,10],\"labels\":[-100,-100]}\n")})));
  const auto stream = Stream({.dataset = Dataset::All(cache),
                              .sequence_length = 6,
                              .rows_per_micro_batch = 1,
                              .micro_batches_per_step = 1});
  const std::vector<Snapshot> step = Step(*stream, 0);
  EXPECT_THAT(step[0].ids, ElementsAre(5, 6, 7, 8, 9, 10));
  EXPECT_THAT(step[0].labels, ElementsAre(-1, 7, 8, -1, -1, -1));
  EXPECT_EQ(stream->ShapeOfStep(0).labelled_tokens, 2);
}

TEST_F(BatchStreamTest, AStepWithoutLabelsSaysSoBeforeItRuns) {
  const auto cache = Must(
      OpenIn(dir_, JsonlSource({dir_.Write("r",
                                           "{\"ids\":[1,2,3,4],\"labels\":[-100,-100,-100,-100]}\n"
                                           "[5,6,7,8]\n")})));
  const auto stream = Stream({.dataset = Dataset::All(cache),
                              .sequence_length = 4,
                              .rows_per_micro_batch = 1,
                              .micro_batches_per_step = 1,
                              .order = RowOrder::kSequential});
  EXPECT_EQ(stream->ShapeOfStep(0).labelled_tokens, 0);
  EXPECT_EQ(stream->ShapeOfStep(1).labelled_tokens, 3);
  EXPECT_THAT(stream->DocumentsOfStep(0), ElementsAre(0));
}

TEST_F(BatchStreamTest, DataSmallerThanABatchIsOneShortStep) {
  const std::string text = dir_.Write("text", "four");  // and the end of document: 5 tokens
  const std::vector<std::shared_ptr<const Dataset>> datasets = {
      Data({{1, 2, 3}}), Data({{1, 2, 3}, {4, 5}, {6, 7, 8, 9}}),
      Dataset::All(Must(OpenIn(dir_, {.paths = {text}})))};
  for (const auto& data : datasets) {
    for (const Packing packing : {Packing::kPacked, Packing::kPadded}) {
      const auto stream = Stream({.dataset = data,
                                  .sequence_length = 16,
                                  .rows_per_micro_batch = 4,
                                  .micro_batches_per_step = 8,
                                  .packing = packing});
      EXPECT_EQ(stream->steps_per_epoch(), 1);
      const StepShape shape = stream->ShapeOfStep(0);
      EXPECT_EQ(shape.rows, packing == Packing::kPacked ? 1 : data->documents());
      EXPECT_EQ(shape.micro_batches, 1);
      EXPECT_EQ(shape.labelled_tokens, data->tokens() - data->documents());
      EXPECT_EQ(shape.real_tokens, data->tokens());
      const std::vector<Snapshot> step = Step(*stream, 0);
      CheckForm(step[0], 4, 16);
      EXPECT_EQ(step[0].labelled_tokens, shape.labelled_tokens);
      EXPECT_EQ(stream->ShapeOfStep(7).epoch, 7);
    }
  }
}

// A document that a row's end cuts goes on in the next row as a segment of its own, and what it
// predicts across the cut is a label of the first part.
TEST_F(BatchStreamTest, WrappedRowsCutDocumentsWithoutLosingLabels) {
  const auto stream = Stream({.dataset = Data({{1, 2, 3}, {11, 12, 13, 14}, {21, 22}}),
                              .sequence_length = 5,
                              .rows_per_micro_batch = 2,
                              .micro_batches_per_step = 1,
                              .packing = Packing::kWrapped,
                              .order = RowOrder::kSequential});
  const std::vector<Snapshot> step = Step(*stream, 0);
  EXPECT_THAT(step[0].ids, ElementsAre(1, 2, 3, 11, 12, 13, 14, 21, 22, 0));
  EXPECT_THAT(step[0].labels, ElementsAre(2, 3, -1, 12, 13, 14, -1, 22, -1, -1));
  EXPECT_THAT(step[0].positions, ElementsAre(0, 1, 2, 0, 1, 0, 1, 0, 1, 0));
  EXPECT_THAT(step[0].starts, ElementsAre(0, 3, 5, 7, 9, 10));
}

// Several datasets with weights: what a step holds is a function of its number, whatever was asked
// before it, so a run that stops anywhere goes on with the same batches.
TEST_F(BatchStreamTest, StepsOfAMixtureDoNotDependOnWhatCameBefore) {
  std::vector<Dataset::Part> parts;
  int32_t base = 0;
  for (const auto& [documents, weight] : {std::pair{31, 1.0}, {7, 2.5}, {12, 0.3}}) {
    std::vector<std::vector<int32_t>> rows;
    for (int d = 0; d < documents; ++d) rows.push_back({base + d, base + d, base + d});
    base += 1000;
    parts.push_back(Dataset::Whole(CacheOfRows(dir_, rows)));
    parts.back().weight = weight;
  }
  const auto dataset = std::make_shared<const Dataset>(std::move(parts));
  for (int round = 0; round < 3; ++round) {
    const BatchStream::Args args{.dataset = dataset,
                                 .sequence_length = 8,
                                 .rows_per_micro_batch = 2,
                                 .micro_batches_per_step = 2,
                                 .packing = static_cast<Packing>(round),
                                 .seed = 5};
    const auto whole = Stream(args);
    const int64_t steps = 4 * whole->steps_per_epoch();
    for (int64_t step = 0; step < steps; ++step) {
      const auto resumed = Stream(args);
      ASSERT_EQ(Step(*resumed, step), Step(*whole, step)) << step;
    }
  }
}

// A buffer that held many short documents holds one long one next, and the other way round.
TEST_F(BatchStreamTest, ABufferKeepsNothingOfTheBatchBefore) {
  const auto data = Data(RowsOfLengths({1, 1, 2, 3, 1, 16, 9, 2, 40, 5}));
  std::vector<std::unique_ptr<BatchStream>> streams;
  for (const Packing packing : {Packing::kPacked, Packing::kPadded, Packing::kWrapped}) {
    streams.push_back(Stream({.dataset = data,
                              .sequence_length = 16,
                              .rows_per_micro_batch = 2,
                              .micro_batches_per_step = 1,
                              .packing = packing}));
  }
  MicroBatchBuffer buffer(2, 16);
  std::mt19937 random(8);
  for (int i = 0; i < 100; ++i) {
    BatchStream& stream = *streams[random() % streams.size()];
    const auto step = static_cast<int64_t>(random() % (2 * stream.steps_per_epoch()));
    stream.Fill(step, 0, buffer);
    EXPECT_EQ(Copy(buffer.view()), Step(stream, step)[0]);
  }
}

TEST_F(BatchStreamTest, EmptyDataIsRefused) {
  const auto empty = std::make_shared<const Dataset>(
      std::vector<Dataset::Part>{{.cache = CacheOfRows(dir_, {{1, 2}})}});
  const absl::Status status = BatchStream::Create({.dataset = empty,
                                                   .sequence_length = 4,
                                                   .rows_per_micro_batch = 4,
                                                   .micro_batches_per_step = 8})
                                  .status();
  EXPECT_EQ(ReasonOf(status), reason::kDataInvalid);
}

TEST_F(BatchStreamTest, ImpossibleShapesAreRefused) {
  const auto data = Data({{1, 2}});
  const int64_t most = std::numeric_limits<int64_t>::max();
  const std::vector<std::array<int64_t, 3>> shapes = {{0, 1, 1},          {1, 0, 1},
                                                      {1, 1, 0},          {-4, 1, 1},
                                                      {most, 1, 1},       {1, most, 1},
                                                      {1, 1, most},       {1 << 16, 1 << 16, 1},
                                                      {most, most, most}, {1 << 20, 1 << 11, 1}};
  for (const auto& [length, rows, micro_batches] : shapes) {
    const absl::Status status = BatchStream::Create({.dataset = data,
                                                     .sequence_length = length,
                                                     .rows_per_micro_batch = rows,
                                                     .micro_batches_per_step = micro_batches})
                                    .status();
    EXPECT_EQ(ReasonOf(status), reason::kSpecInvalid) << length << " " << rows;
  }
}

TEST_F(BatchStreamTest, TailStepHasOnlyWhatIsLeft) {
  // 11 rows, 2 x 3 a step: 6, then 5 in three micro-batches, of which the last has one.
  const auto data = Data(RowsOfLengths(std::vector<int64_t>(11, 4)));
  const auto stream = Stream({.dataset = data,
                              .sequence_length = 4,
                              .rows_per_micro_batch = 2,
                              .micro_batches_per_step = 3});
  EXPECT_EQ(stream->rows_per_epoch(), 11);
  EXPECT_EQ(stream->steps_per_epoch(), 2);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    const StepShape full = stream->ShapeOfStep(2 * epoch),
                    tail = stream->ShapeOfStep(2 * epoch + 1);
    EXPECT_EQ(full.rows, 6);
    EXPECT_EQ(full.labelled_tokens, 18);
    EXPECT_EQ(tail.epoch, epoch);
    EXPECT_EQ(tail.first_row, 6);
    EXPECT_EQ(tail.rows, 5);
    EXPECT_EQ(tail.micro_batches, 3);
    EXPECT_EQ(tail.labelled_tokens, 15);
    const std::vector<Snapshot> step = Step(*stream, 2 * epoch + 1);
    EXPECT_EQ(step[2].real_tokens, 4);
    EXPECT_THAT(step[2].starts, ElementsAre(0, 4, 8));  // the empty row is one segment
    EXPECT_EQ(std::count(step[2].labels.begin() + 4, step[2].labels.end(), kIgnoreLabel), 4);
  }
  const auto short_tail = Stream({.dataset = data,
                                  .sequence_length = 4,
                                  .rows_per_micro_batch = 5,
                                  .micro_batches_per_step = 2});
  EXPECT_EQ(short_tail->ShapeOfStep(1).rows, 1);
  EXPECT_EQ(short_tail->ShapeOfStep(1).micro_batches, 1);
}

TEST_F(BatchStreamTest, RowsDoNotDependOnHowAStepIsCut) {
  const auto data = Data(RowsOfLengths(std::vector<int64_t>(12, 4)));
  const auto ids_of = [&](int64_t rows, int64_t micro_batches) {
    const auto stream = Stream({.dataset = data,
                                .sequence_length = 4,
                                .rows_per_micro_batch = rows,
                                .micro_batches_per_step = micro_batches});
    std::vector<int32_t> ids;
    for (int64_t step = 0; step < 4; ++step) {
      for (const Snapshot& batch : Step(*stream, step)) {
        ids.insert(ids.end(), batch.ids.begin(), batch.ids.end());
      }
    }
    return ids;
  };
  EXPECT_EQ(ids_of(6, 1), ids_of(1, 6));
  EXPECT_EQ(ids_of(6, 1), ids_of(3, 2));
}

TEST_F(BatchStreamTest, AnyStepIsReachedDirectly) {
  std::mt19937 random(4);
  std::vector<int64_t> lengths(50);
  for (int64_t& length : lengths) length = 1 + random() % 40;
  const BatchStream::Args args = {.dataset = Data(RowsOfLengths(lengths)),
                                  .sequence_length = 16,
                                  .rows_per_micro_batch = 2,
                                  .micro_batches_per_step = 3,
                                  .seed = 9};
  const auto in_order = Stream(args);
  const int64_t steps = 3 * in_order->steps_per_epoch();
  ASSERT_GE(in_order->steps_per_epoch(), 3);
  std::vector<std::vector<Snapshot>> reached;
  for (int64_t step = 0; step < steps; ++step) reached.push_back(Step(*in_order, step));
  for (int64_t step = 0; step < steps; ++step) {
    EXPECT_EQ(Step(*Stream(args), step), reached[step]) << step;  // a resumed job
  }
  for (int i = 0; i < 50; ++i) {  // and in any order
    const auto step = static_cast<int64_t>(random() % steps);
    EXPECT_EQ(Step(*in_order, step), reached[step]) << step;
  }
}

TEST_F(BatchStreamTest, EpochsDifferAndSequentialOnesDoNot) {
  BatchStream::Args args = {.dataset = Data(RowsOfLengths(std::vector<int64_t>(40, 4))),
                            .sequence_length = 8,
                            .rows_per_micro_batch = 20,
                            .micro_batches_per_step = 1};
  EXPECT_NE(Step(*Stream(args), 0), Step(*Stream(args), 1));
  const auto first_seed = Step(*Stream(args), 0);
  args.seed = 1;
  EXPECT_NE(Step(*Stream(args), 0), first_seed);
  args.order = RowOrder::kSequential;
  EXPECT_EQ(Step(*Stream(args), 0), Step(*Stream(args), 1));
}

TEST_F(BatchStreamTest, EvaluatingDoesNotMoveTheTrainingOrder) {
  const auto data = Data(RowsOfLengths(std::vector<int64_t>(30, 5)));
  const BatchStream::Args args = {.dataset = data,
                                  .sequence_length = 8,
                                  .rows_per_micro_batch = 2,
                                  .micro_batches_per_step = 2};
  BatchStream::Args evaluation_args = args;
  evaluation_args.order = RowOrder::kSequential;
  const auto alone = Stream(args), beside = Stream(args), evaluation = Stream(evaluation_args);
  for (int64_t step = 0; step < 10; ++step) {
    const auto wanted = Step(*alone, step);
    Step(*evaluation, step);
    EXPECT_EQ(Step(*beside, step), wanted);
  }
}

TEST_F(BatchStreamTest, DocumentsOfAStepAreNamedOnce) {
  const auto data = Data(RowsOfLengths({20, 3, 5}));
  const auto stream = Stream({.dataset = data,
                              .sequence_length = 8,
                              .rows_per_micro_batch = 8,
                              .micro_batches_per_step = 1});
  EXPECT_THAT(stream->DocumentsOfStep(0), ElementsAre(0, 1, 2));
}

// The worst case of segments: every token its own document.
TEST_F(BatchStreamTest, BufferHoldsASegmentForEveryToken) {
  std::vector<int64_t> lengths(15, 1);
  const auto data = Data(RowsOfLengths(lengths));
  const auto stream = Stream({.dataset = data,
                              .sequence_length = 5,
                              .rows_per_micro_batch = 3,
                              .micro_batches_per_step = 1});
  const std::vector<Snapshot> step = Step(*stream, 0);
  EXPECT_EQ(step[0].starts.size(), 16u);
  CheckForm(step[0], 3, 5);
}

}  // namespace
}  // namespace penstock
