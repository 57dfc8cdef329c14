// TFLOP/s of CUDA attention, cuDNN against our own kernels: packed documents of one length, causal.
//
//   penstock_attention_bench [heads kv_heads head_dim rows]     28 4 128 65536 unless given
//
// Counts the products that the causal mask leaves: 2 forward and 5 backward, each
// 2 * head_dim * length^2 / 2 a head. The median of several runs after one that builds plans.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "bench/device_bench.h"
#include "engine/cuda/context.h"
#include "engine/cuda/device_memory.h"
#include "engine/kernels/attention.h"

namespace penstock {
namespace {

constexpr int kRuns = 5;

struct Arrays {
  explicit Arrays(const AttentionShape& shape)
      : qkv(Allocate(shape.rows * Width(shape) * 2)),
        dqkv(Allocate(shape.rows * Width(shape) * 2)),
        out(Allocate(shape.rows * shape.num_heads * shape.head_dim * 2)),
        dout(Allocate(shape.rows * shape.num_heads * shape.head_dim * 2)),
        lse(Allocate(shape.rows * shape.num_heads * 4)),
        starts(Allocate((shape.rows + 1) * 4)),
        scratch(Allocate(CudaAttentionScratchBytes(shape))) {
    FillRandom(qkv);
    FillRandom(dout);
  }
  static int64_t Width(const AttentionShape& shape) {
    return (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
  }
  cuda::DeviceMemory qkv, dqkv, out, dout, lse, starts, scratch;
};

template <typename Args>
void SetShape(const AttentionShape& shape, const Arrays& arrays, const std::vector<int32_t>& starts,
              Args& args) {
  const int64_t width = Arrays::Width(shape), k_at = shape.num_heads * shape.head_dim;
  args.q = Data<bf16>(arrays.qkv);
  args.k = args.q + k_at;
  args.v = args.k + shape.num_kv_heads * shape.head_dim;
  args.q_stride = args.k_stride = args.v_stride = width;
  args.out = Data<bf16>(arrays.out);
  args.lse = Data<float>(arrays.lse);
  args.document_starts = Data<int32_t>(arrays.starts);
  args.num_documents = static_cast<int64_t>(starts.size()) - 1;
  args.rows = shape.rows;
  args.num_heads = shape.num_heads;
  args.num_kv_heads = shape.num_kv_heads;
  args.head_dim = shape.head_dim;
  args.scale = 0.088f;
  args.window = 0;
  args.scratch = arrays.scratch.data();
  args.scratch_bytes = arrays.scratch.bytes();
  args.host_document_starts = starts.data();
}

void Measure(const cuda::Context& context, const char* name, const AttentionShape& shape,
             const Arrays& arrays, const std::vector<int32_t>& starts) {
  AttentionForwardArgs<bf16> forward{};
  SetShape(shape, arrays, starts, forward);
  AttentionBackwardArgs<bf16> backward{};
  SetShape(shape, arrays, starts, backward);
  backward.dout = Data<bf16>(arrays.dout);
  backward.dq = Data<bf16>(arrays.dqkv);
  backward.dk = backward.dq + (backward.k - backward.q);
  backward.dv = backward.dq + (backward.v - backward.q);
  backward.dq_stride = backward.dk_stride = backward.dv_stride = Arrays::Width(shape);
  double pairs = 0;
  for (size_t i = 1; i < starts.size(); ++i) {
    const double length = starts[i] - starts[i - 1];
    pairs += length * length / 2;
  }
  const double product = 2 * pairs * static_cast<double>(shape.num_heads * shape.head_dim);
  const double forward_ms =
      MedianMs(context.stream, kRuns, 1, [&] { Check(AttentionForward(context, forward)); });
  const double backward_ms =
      MedianMs(context.stream, kRuns, 1, [&] { Check(AttentionBackward(context, backward)); });
  std::printf("%-6s forward %8.3f ms %4.0f TFLOP/s  backward %8.3f ms %4.0f TFLOP/s\n", name,
              forward_ms, 2 * product / forward_ms / 1e9, backward_ms,
              5 * product / backward_ms / 1e9);
}

void MeasureDocuments(const cuda::Context& context, const char* title, const AttentionShape& shape,
                      const std::vector<int32_t>& starts) {
  const Arrays arrays(shape);
  Check(cudaMemcpy(arrays.starts.data(), starts.data(), starts.size() * sizeof(int32_t),
                   cudaMemcpyHostToDevice));
  std::printf("%s, %lld rows, scratch %.0f MiB\n", title, static_cast<long long>(shape.rows),
              static_cast<double>(arrays.scratch.bytes()) / (1 << 20));
  if (shape.head_dim <= kLargestCudnnHeadDim) Measure(context, "cuDNN", shape, arrays, starts);
  cuda::Context own = context;
  own.cudnn = nullptr;
  Measure(own, "own", shape, arrays, starts);
}

std::vector<int32_t> Uniform(int64_t rows, int64_t length) {
  std::vector<int32_t> starts = {0};
  while (starts.back() < rows) {
    starts.push_back(static_cast<int32_t>(std::min(rows, starts.back() + length)));
  }
  return starts;
}

// Lengths as of text: most short, a few long.
std::vector<int32_t> Mixed(int64_t rows) {
  std::mt19937 random(1);
  std::lognormal_distribution<double> length(6.0, 1.2);
  std::vector<int32_t> starts = {0};
  while (starts.back() < rows) {
    const auto next = starts.back() + 1 + static_cast<int64_t>(length(random));
    starts.push_back(static_cast<int32_t>(std::min(rows, next)));
  }
  return starts;
}

int Main(int argc, char** argv) {
  int64_t values[] = {28, 4, 128, 65536};
  for (int i = 1; i < std::min(argc, 5); ++i) values[i - 1] = std::atoll(argv[i]);
  auto context = cuda::OwnedContext::Create();
  Check(context.status());
  const AttentionShape shape{values[3], values[0], values[1], values[2]};
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  for (const int64_t length : {1024, 4096, 16384, 65536}) {
    if (length > shape.rows) break;
    AttentionShape some = shape;
    some.rows = std::max<int64_t>(length, std::min<int64_t>(shape.rows, 16384));
    MeasureDocuments((*context)->get(), ("documents of " + std::to_string(length)).c_str(), some,
                     Uniform(some.rows, length));
  }
  AttentionShape some = shape;
  some.rows = std::min<int64_t>(shape.rows, 16384);
  MeasureDocuments((*context)->get(), "documents of mixed lengths, mean 830", some,
                   Mixed(some.rows));
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) { return penstock::Main(argc, argv); }
