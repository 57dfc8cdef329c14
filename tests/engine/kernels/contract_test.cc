// A broken contract is refused with the op, the wish and the values, and nothing is written.
#include "engine/kernels/contract.h"

#include <string>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/kernels/adamw.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/cross_entropy.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/embedding.h"
#include "engine/kernels/linear.h"
#include "engine/kernels/rmsnorm.h"
#include "engine/kernels/rope.h"
#include "engine/kernels/round_gradients.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace penstock {
namespace {

using testing::HasSubstr;

void ExpectRefused(const absl::Status& status, const std::string& part) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

class ContractTest : public testing::Test {
 protected:
  ThreadPool pool_{2};
  cpu::Context context_{&pool_};
  std::vector<float> data_ = std::vector<float>(64, 1.0f);
  std::vector<float> out_ = std::vector<float>(64, 7.0f);
  std::vector<float> untouched_ = out_;
};

TEST_F(ContractTest, SizesOutOfRange) {
  LinearForwardArgs<float> args{
      .x = data_.data(), .w = data_.data(), .y = out_.data(), .rows = 2, .in = -1, .out = 2};
  ExpectRefused(LinearForward(context_, args), "in = -1");
  args.in = int64_t{1} << 31;
  ExpectRefused(LinearForward(context_, args), "2147483648");
  EXPECT_EQ(out_, untouched_);
}

TEST_F(ContractTest, MissingArrays) {
  ExpectRefused(
      LinearForward(
          context_,
          {.x = data_.data(), .w = nullptr, .y = out_.data(), .rows = 2, .in = 2, .out = 2}),
      "LinearForward: wanted arrays x, w and y");
  ExpectRefused(CopyBytes(context_, out_.data(), nullptr, 3), "CopyBytes");
  ExpectRefused(CopyBytes(context_, out_.data(), data_.data(), -3), "count = -3");
  EXPECT_EQ(out_, untouched_);
}

TEST_F(ContractTest, RmsNormCannotAddToItsOwnInput) {
  ExpectRefused(RmsNormBackward(context_, {.dy = out_.data(),
                                           .x = data_.data(),
                                           .w = data_.data(),
                                           .rstd = data_.data(),
                                           .dx = out_.data(),
                                           .dx_mode = WriteMode::kAdd,
                                           .dw = data_.data(),
                                           .dw_mode = WriteMode::kAdd,
                                           .rows = 2,
                                           .cols = 4}),
                "kOverwrite where dx is dy");
  EXPECT_EQ(out_, untouched_);
}

TEST_F(ContractTest, RopePositionsAndOddHeads) {
  std::vector<int32_t> positions = {0, 4};
  RopeArgs<float> args{.x = out_.data(),
                       .stride = 4,
                       .rows = 2,
                       .heads = 1,
                       .head_dim = 4,
                       .positions = positions.data(),
                       .table = data_.data(),
                       .max_positions = 4,
                       .direction = RopeDirection::kForward};
  ExpectRefused(Rope(context_, args), "row = 1, position = 4, max_positions = 4");
  positions[1] = -1;
  ExpectRefused(Rope(context_, args), "position = -1");
  args.head_dim = 3;
  ExpectRefused(Rope(context_, args), "head_dim = 3");
  EXPECT_EQ(out_, untouched_);
}

TEST_F(ContractTest, IdsAndLabelsOutsideTheVocabulary) {
  for (const int32_t id : {-1, 8}) {
    const std::vector<int32_t> ids = {0, id};
    ExpectRefused(EmbeddingForward(context_, {.ids = ids.data(),
                                              .table = data_.data(),
                                              .out = out_.data(),
                                              .rows = 2,
                                              .cols = 4,
                                              .vocab = 8}),
                  "id = " + std::to_string(id));
    ExpectRefused(EmbeddingBackward(context_, {.ids = ids.data(),
                                               .dout = data_.data(),
                                               .dtable = out_.data(),
                                               .rows = 2,
                                               .cols = 4,
                                               .vocab = 8,
                                               .mode = WriteMode::kOverwrite}),
                  "vocab = 8");
  }
  double loss = 0;
  int64_t count = 0;
  for (const int32_t label : {-2, 8}) {
    const std::vector<int32_t> labels = {0, label};
    ExpectRefused(CrossEntropy(context_, {.logits = out_.data(),
                                          .labels = labels.data(),
                                          .rows = 2,
                                          .vocab = 8,
                                          .scale = 1.0f,
                                          .loss_sum = &loss,
                                          .labelled_tokens = &count,
                                          .mode = CrossEntropyMode::kLossAndGradient}),
                  "label = " + std::to_string(label));
  }
  EXPECT_EQ(out_, untouched_);
  EXPECT_EQ(loss, 0);
  EXPECT_EQ(count, 0);
}

TEST_F(ContractTest, AttentionDocumentsHeadsAndScratch) {
  std::vector<int32_t> starts = {0, 3, 4};
  std::vector<float> scratch(CpuAttentionScratchBytes(context_.pool->size()) / 4);
  const AttentionForwardArgs<float> good{.q = data_.data(),
                                         .q_stride = 8,
                                         .k = data_.data(),
                                         .k_stride = 8,
                                         .v = data_.data(),
                                         .v_stride = 8,
                                         .out = out_.data(),
                                         .lse = out_.data() + 32,
                                         .document_starts = starts.data(),
                                         .num_documents = 2,
                                         .rows = 4,
                                         .num_heads = 4,
                                         .num_kv_heads = 2,
                                         .head_dim = 2,
                                         .scale = 1.0f,
                                         .window = 0,
                                         .scratch = scratch.data(),
                                         .scratch_bytes = static_cast<int64_t>(scratch.size()) * 4};
  auto args = good;
  args.num_kv_heads = 3;
  ExpectRefused(AttentionForward(context_, args), "num_kv_heads = 3");
  args.num_kv_heads = 0;
  ExpectRefused(AttentionForward(context_, args), "num_kv_heads = 0");
  args = good;
  args.scratch_bytes -= 1;
  ExpectRefused(AttentionForward(context_, args), "scratch_bytes");
  args = good;
  args.rows = 5;
  ExpectRefused(AttentionForward(context_, args), "last = 4, rows = 5");
  starts = {0, 5, 4};
  ExpectRefused(AttentionForward(context_, good), "document = 1, start = 5");
  starts = {1, 3, 4};
  ExpectRefused(AttentionForward(context_, good), "first = 1");
  EXPECT_EQ(out_, untouched_);
}

TEST_F(ContractTest, AdamWCountsUpdatesFromOneAndWantsOneGradient) {
  std::vector<uint16_t> hi(4);
  std::vector<int16_t> lo(4);
  const std::vector<bf16> rounded(4);
  const auto args = [&](const float* gradient, const bf16* gradient_bf16, double correction) {
    return AdamWArgs{.hi = hi.data(),
                     .lo = lo.data(),
                     .m = out_.data(),
                     .v = out_.data() + 4,
                     .gradient = gradient,
                     .gradient_bf16 = gradient_bf16,
                     .count = 4,
                     .learning_rate = 1,
                     .beta1 = 0.9,
                     .beta2 = 0.9,
                     .epsilon = 1e-8,
                     .weight_decay = 0,
                     .gradient_scale = 1,
                     .bias_correction1 = correction,
                     .bias_correction2 = correction};
  };
  ExpectRefused(AdamW(context_, args(data_.data(), nullptr, 0)), "counted from 1");
  ExpectRefused(AdamW(context_, args(nullptr, nullptr, 1)), "gradients = 0");
  ExpectRefused(AdamW(context_, args(data_.data(), rounded.data(), 1)), "gradients = 2");
  EXPECT_EQ(out_, untouched_);
}

TEST_F(ContractTest, RoundToBf16WorksApartOrInPlaceOnly) {
  bf16* bytes = reinterpret_cast<bf16*>(out_.data());
  ExpectRefused(RoundToBf16(context_, out_.data(), bytes + 1, 4), "out - in = 2");
  ExpectRefused(RoundToBf16(context_, out_.data() + 1, bytes, 4), "out - in = -4");
  ExpectRefused(RoundToBf16(context_, out_.data(), nullptr, 4), "arrays in and out");
  ExpectRefused(RoundToBf16(context_, out_.data(), bytes, -1), "count = -1");
  EXPECT_EQ(out_, untouched_);
}

}  // namespace
}  // namespace penstock
