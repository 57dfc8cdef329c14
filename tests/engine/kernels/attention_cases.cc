#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/base/thread_pool.h"
#include "engine/kernels/attention.h"
#include "gtest/gtest.h"
#include "tests/engine/kernels/attention_fixture.h"

namespace penstock {

AttentionInputs RandomAttention(const reference::AttentionShape& shape, uint32_t seed) {
  AttentionInputs inputs{.shape = shape, .qkv = {}, .dout = {}};
  inputs.qkv = Random(shape.rows() * inputs.stride(), seed);
  inputs.dout = Random(shape.rows() * inputs.q_size(), seed + 1);
  return inputs;
}

AttentionResults RunAttention(const cpu::Context& context, const AttentionInputs& inputs) {
  const reference::AttentionShape& shape = inputs.shape;
  const int64_t scratch_bytes = CpuAttentionScratchBytes(context.pool->size());
  Floats scratch = Poisoned(scratch_bytes / static_cast<int64_t>(sizeof(float)));
  AttentionResults results{Poisoned(inputs.dout.size()), Poisoned(shape.rows() * shape.heads),
                           Poisoned(inputs.qkv.size())};
  const AttentionArrays<float> arrays{.qkv = inputs.qkv.data(),
                                      .dout = inputs.dout.data(),
                                      .out = results.out.data(),
                                      .lse = results.lse.data(),
                                      .dqkv = results.dqkv.data(),
                                      .starts = shape.starts.data(),
                                      .scratch = scratch.data(),
                                      .scratch_bytes = scratch_bytes};
  EXPECT_TRUE(AttentionForward(context, ForwardArgs(inputs, arrays)).ok());
  std::fill(scratch.begin(), scratch.end(), Poisoned(1).front());
  EXPECT_TRUE(AttentionBackward(context, BackwardArgs(inputs, arrays)).ok());
  return results;
}

namespace {

ParityCase Case(const std::string& documents_name, const std::vector<int32_t>& starts,
                int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t window) {
  const AttentionInputs inputs =
      RandomAttention({.starts = starts,
                       .heads = heads,
                       .kv_heads = kv_heads,
                       .head_dim = head_dim,
                       .window = window,
                       .scale = static_cast<float>(1.0 / std::sqrt(head_dim))},
                      1);
  return {.name = absl::StrCat("Attention", documents_name, "Heads", heads, "of", kv_heads, "Dim",
                               head_dim, "Window", window),
          .run =
              [=](const cpu::Context& context) {
                AttentionResults results = RunAttention(context, inputs);
                const int64_t rows = inputs.shape.rows();
                const auto columns = [&](int64_t begin, int64_t count) {
                  return Columns(results.dqkv, rows, inputs.stride(), begin, count);
                };
                return std::vector<Floats>{
                    results.out, results.lse, columns(0, inputs.q_size()),
                    columns(inputs.q_size(), inputs.kv_size()),
                    columns(inputs.q_size() + inputs.kv_size(), inputs.kv_size())};
              },
          .expected =
              [=] {
                const auto q = ToDoubles(inputs.q());
                const auto k = ToDoubles(inputs.k());
                const auto v = ToDoubles(inputs.v());
                const auto forward = reference::Attention(inputs.shape, q, k, v);
                const auto g =
                    reference::AttentionBackward(inputs.shape, q, k, v, ToDoubles(inputs.dout));
                return std::vector<reference::Doubles>{forward.out, forward.lse, g.dq, g.dk, g.dv};
              },
          .tolerance = 4e-6};
}

}  // namespace

std::vector<ParityCase> AttentionCases() {
  const std::vector<int32_t> packed = {0, 0, 1, 3, 66, 130, 195, 325, 325};
  std::vector<ParityCase> cases;
  for (const int64_t window : {0, 1, 3, 64, 65, 1000}) {
    cases.push_back(Case("Packed", packed, 4, 4, 8, window));
    cases.push_back(Case("Packed", packed, 4, 2, 16, window));
    cases.push_back(Case("Packed", packed, 4, 1, 10, window));
    cases.push_back(Case("One", {0, 200}, 2, 1, 64, window));
  }
  cases.push_back(Case("None", {0}, 2, 1, 8, 0));
  cases.push_back(Case("Empty", {0, 0, 0}, 2, 1, 8, 0));
  cases.push_back(Case("OneToken", {0, 1}, 1, 1, 2, 0));
  return cases;
}

}  // namespace penstock
