// Documents side by side in the batches that our own packing makes of masked rows: each has the
// logits, the loss and the gradients that it has alone, and what its neighbours say changes no bit
// of them. On every family of tests/testdata/reference; those with a window or odd positions are
// where leaks come from.
#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "engine/base/labels.h"
#include "engine/data/batch.h"
#include "gtest/gtest.h"
#include "tests/engine/data/data_test_util.h"
#include "tests/engine/nn/comparison.h"
#include "tests/engine/nn/decoder_run.h"
#include "tests/engine/nn/reference_case.h"
#include "tests/engine/nn/step_run.h"

namespace penstock {
namespace {

// BLAS may sum in another order where there are more rows.
constexpr double kLogitsBound = 1e-5;
constexpr double kGradientBound = 1e-5;
constexpr double kLossBound = 1e-6;

constexpr int64_t kSequence = 16;
constexpr int64_t kRows = 2;  // of a micro-batch

// Bytes as ids, folded into a small vocabulary.
class FoldedBytes final : public Tokenizer {
 public:
  explicit FoldedBytes(int64_t vocab_size) : vocab_size_(vocab_size) {}

  absl::Status Encode(std::string_view text, std::vector<int32_t>& ids) const override {
    for (const unsigned char byte : text) ids.push_back(Fold(byte));
    return absl::OkStatus();
  }
  absl::Status EncodeWithSpans(std::string_view text, const EncodeOptions& options,
                               Encoding& encoding) const override {
    const absl::Status status = ByteTokenizer().EncodeWithSpans(text, options, encoding);
    for (int32_t& id : encoding.ids) id = Fold(id);
    return status;
  }
  int64_t vocab_size() const override { return vocab_size_; }
  std::string fingerprint() const override { return "folded" + std::to_string(vocab_size_); }
  std::optional<int32_t> end_of_document() const override {
    return static_cast<int32_t>(vocab_size_ - 1);
  }

 private:
  int32_t Fold(int32_t id) const { return static_cast<int32_t>(id % vocab_size_); }

  const int64_t vocab_size_;
};

// One micro-batch, copied.
struct Batch {
  std::vector<int32_t> ids, positions, labels, starts;

  int64_t segments() const { return static_cast<int64_t>(starts.size()) - 1; }
  // Segment s by itself.
  Batch Alone(int64_t s) const {
    const auto cut = [&](const std::vector<int32_t>& values) {
      return std::vector<int32_t>(values.begin() + starts[s], values.begin() + starts[s + 1]);
    };
    return {cut(ids), cut(positions), cut(labels), {0, starts[s + 1] - starts[s]}};
  }
  int64_t labelled() const {
    return static_cast<int64_t>(labels.size()) -
           std::count(labels.begin(), labels.end(), kIgnoreLabel);
  }
};

Batch Joined(const std::vector<Batch>& batches) {
  Batch all;
  all.starts = {0};
  for (const Batch& batch : batches) {
    const auto base = static_cast<int32_t>(all.ids.size());
    all.ids.insert(all.ids.end(), batch.ids.begin(), batch.ids.end());
    all.positions.insert(all.positions.end(), batch.positions.begin(), batch.positions.end());
    all.labels.insert(all.labels.end(), batch.labels.begin(), batch.labels.end());
    for (int64_t s = 1; s <= batch.segments(); ++s) all.starts.push_back(base + batch.starts[s]);
  }
  return all;
}

class PackedStepTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    reference_ = Must(LoadReferenceCase(GetParam()));
    const auto config = nlohmann::json::parse(reference_.config_json);
    vocab_size_ = config.at("vocab_size").get<int64_t>();
  }

  // The first step's micro-batches of a dataset of prompts and answers: short ones, one that fills
  // a row to the last token, one that is longer than a row.
  std::vector<Batch> FirstStep(Packing packing) {
    const std::vector<std::pair<std::string, std::string>> rows = {
        {"how", "so"},
        {"", "ten bytes."},
        {"a longer question", "and an answer to it"},
        {"exactly ", "16 long"},
        {"x", "y"},
        {"which of", "these"},
        {"no", "1"},
        {"why not", "because"},
        {"12345", "6"}};
    std::string text;
    for (const auto& [prompt, completion] : rows) {
      text += nlohmann::json{{"prompt", prompt}, {"completion", completion}}.dump() + "\n";
    }
    const FoldedBytes tokenizer(vocab_size_);
    const ExampleEncoder encoder = Must(
        ExampleEncoder::Create({.tokenizer = &tokenizer,
                                .rules = {.max_tokens = kSequence, .too_long = TooLong::kSplit}}));
    const auto cache = Must(TokenCache::OpenOrBuild(
        {.source = {.format = DataFormat::kRows, .paths = {dir_.Write("rows.jsonl", text)}},
         .encoder = &encoder,
         .directory = dir_.path() + "/cache"}));
    EXPECT_FALSE(cache->AllTrained());
    const auto stream = Must(BatchStream::Create({.dataset = Dataset::All(cache),
                                                  .sequence_length = kSequence,
                                                  .rows_per_micro_batch = kRows,
                                                  .micro_batches_per_step = 100,
                                                  .packing = packing,
                                                  .seed = 3}));
    std::vector<Batch> batches;
    const StepShape shape = stream->ShapeOfStep(0);
    EXPECT_EQ(shape.labelled_tokens, Dataset::All(cache)->labelled_tokens());  // none lost
    MicroBatchBuffer buffer(kRows, kSequence);
    for (int64_t m = 0; m < shape.micro_batches; ++m) {
      stream->Fill(0, m, buffer);
      const MicroBatch& view = buffer.view();
      const auto copy = [](std::span<const int32_t> values) {
        return std::vector<int32_t>(values.begin(), values.end());
      };
      batches.push_back(
          {copy(view.ids), copy(view.positions), copy(view.labels), copy(view.document_starts)});
    }
    return batches;
  }

  // The case with these tokens instead of its own.
  ReferenceCase With(const Batch& batch) const {
    ReferenceCase changed = reference_;
    changed.ids = batch.ids;
    changed.position_ids = batch.positions;
    changed.labels = batch.labels;
    changed.document_starts = batch.starts;
    return changed;
  }

  // Forward and backward without an executor: what has logits to look at.
  DecoderResult Decode(const Batch& batch) const {
    return Must(RunDecoder(With(batch), {.head_chunk_rows = 512}));
  }

  // Another text of the same length.
  Batch Perturbed(Batch batch, int64_t segment) const {
    for (int32_t i = batch.starts[segment]; i < batch.starts[segment + 1]; ++i) {
      batch.ids[i] = static_cast<int32_t>((batch.ids[i] + 1 + i % 5) % vocab_size_);
    }
    return batch;
  }

  std::span<const float> LogitsOf(const DecoderResult& result, const Batch& batch,
                                  int64_t segment) const {
    const int64_t begin = batch.starts[segment], end = batch.starts[segment + 1];
    return std::span(result.logits).subspan(begin * vocab_size_, (end - begin) * vocab_size_);
  }

  ReferenceCase reference_;
  int64_t vocab_size_ = 0;
  TempDir dir_;
};

constexpr Packing kPackings[] = {Packing::kPacked, Packing::kWrapped, Packing::kPadded};

TEST_P(PackedStepTest, NoLabelCrossesABoundary) {
  for (const Packing packing : kPackings) {
    int64_t crowded = 0, labels_at_ends = 0;
    for (const Batch& batch : FirstStep(packing)) {
      crowded += batch.segments() > kRows ? 1 : 0;
      for (int64_t s = 0; s < batch.segments(); ++s) {
        const Batch alone = batch.Alone(s);
        for (size_t p = 0; p < alone.ids.size(); ++p) {
          EXPECT_EQ(alone.positions[p], static_cast<int32_t>(p));
          if (alone.labels[p] == kIgnoreLabel) continue;
          if (p + 1 < alone.ids.size()) {
            EXPECT_EQ(alone.labels[p], alone.ids[p + 1]);
          } else {
            ++labels_at_ends;
          }
        }
      }
    }
    EXPECT_GT(crowded, 0);
    // That of the document of three windows, where its answer is cut: it is its own next token.
    if (packing != Packing::kWrapped) {
      EXPECT_EQ(labels_at_ends, 1);
    }
  }
}

// BC-22
TEST_P(PackedStepTest, LogitsAreThoseOfTheDocumentAlone) {
  for (const Batch& batch : FirstStep(Packing::kPacked)) {
    const DecoderResult packed = Decode(batch);
    for (int64_t s = 0; s < batch.segments(); ++s) {
      Batch document = batch.Alone(s);
      document.labels[0] = 0;  // there must be one; it is not what is looked at
      const DecoderResult alone = Decode(document);
      const Difference difference = Compare(LogitsOf(packed, batch, s), alone.logits);
      EXPECT_LE(difference.worst(), kLogitsBound) << "segment " << s << " " << difference;
    }
  }
}

// The executor's step over all micro-batches, against one step for every document.
TEST_P(PackedStepTest, TheStepIsTheSumOfItsDocuments) {
  for (const Packing packing : kPackings) {
    const Batch all = Joined(FirstStep(packing));
    const auto run = [&](const Batch& batch, int64_t tokens, StepResult& result) {
      const StepVariant variant = {.tokens_per_micro_batch = tokens, .policy = {}};
      const auto step = Must(StepRun::Create(With(batch), variant, 1e-3));
      result = Must(step->Step());
      return step->Gradients();
    };
    StepResult packed;
    const TensorMap gradients = run(all, kRows * kSequence, packed);
    ASSERT_EQ(packed.labelled_tokens, all.labelled());
    double loss = 0;
    std::map<std::string, std::vector<double>> sums;
    for (int64_t s = 0; s < all.segments(); ++s) {
      const Batch document = all.Alone(s);
      if (document.labelled() == 0) continue;
      StepResult alone;
      const double share =
          static_cast<double>(document.labelled()) / static_cast<double>(packed.labelled_tokens);
      for (const auto& [name, gradient] :
           run(document, static_cast<int64_t>(document.ids.size()), alone)) {
        std::vector<double>& sum = sums[name];
        sum.resize(gradient.size());
        for (size_t i = 0; i < gradient.size(); ++i) sum[i] += share * gradient[i];
      }
      loss += alone.loss_sum;
    }
    EXPECT_NEAR(packed.loss_sum / loss, 1, kLossBound);
    ASSERT_EQ(sums.size(), gradients.size());
    for (const auto& [name, gradient] : gradients) {
      const std::vector<float> sum(sums.at(name).begin(), sums.at(name).end());
      const Difference difference = Compare(gradient, sum);
      EXPECT_LE(difference.worst(), kGradientBound) << name << " " << difference;
    }
  }
}

// Which bits depend on a document: its own logits, and, since nothing of it is learned here, no
// gradient at all.
TEST_P(PackedStepTest, AnotherTextInADocumentChangesNoBitOfTheOthers) {
  const std::vector<Batch> batches = FirstStep(Packing::kPacked);
  const Batch& batch =
      *std::max_element(batches.begin(), batches.end(),
                        [](const Batch& a, const Batch& b) { return a.segments() < b.segments(); });
  ASSERT_GE(batch.segments(), 3);
  for (int64_t s = 0; s < batch.segments(); ++s) {
    Batch unlearned = batch;
    std::fill(unlearned.labels.begin() + batch.starts[s],
              unlearned.labels.begin() + batch.starts[s + 1], kIgnoreLabel);
    ASSERT_GT(unlearned.labelled(), 0);
    const DecoderResult before = Decode(unlearned);
    const DecoderResult after = Decode(Perturbed(unlearned, s));
    for (int64_t other = 0; other < batch.segments(); ++other) {
      const auto logits = LogitsOf(before, batch, other), again = LogitsOf(after, batch, other);
      EXPECT_EQ(std::equal(logits.begin(), logits.end(), again.begin()), other != s)
          << s << " changes " << other;
    }
    EXPECT_EQ(before.loss, after.loss);
    EXPECT_EQ(before.gradients, after.gradients);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, PackedStepTest, testing::ValuesIn(ReferenceCaseNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace penstock
