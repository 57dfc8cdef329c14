// Kernels that are bound by the device's memory, against a copy of as many bytes.
//
//   penstock_memory_bound_bench      a layer of Qwen2.5 7B and its head, 16,384 tokens
//
// A line a kernel: bytes that it must read and write, its time, the copy's (cudaMemcpyAsync within
// the device, which reads half of the bytes and writes half), and the kernel's share of its rate.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <random>
#include <set>
#include <vector>

#include "absl/functional/function_ref.h"
#include "bench/device_bench.h"
#include "engine/base/bf16.h"
#include "engine/cuda/context.h"
#include "engine/cuda/device_memory.h"
#include "engine/kernels/adamw.h"
#include "engine/kernels/column_sum_cuda.h"
#include "engine/kernels/cross_entropy.h"
#include "engine/kernels/embedding.h"
#include "engine/kernels/head_norm.h"
#include "engine/kernels/rmsnorm.h"
#include "engine/kernels/rope.h"
#include "engine/kernels/round_gradients.h"
#include "engine/kernels/sum_of_squares.h"
#include "engine/kernels/swiglu.h"

namespace penstock {
namespace {

constexpr int64_t kRows = 16384, kHidden = 3584, kIntermediate = 18944, kVocab = 152064;
constexpr int64_t kHeads = 28, kHeadDim = 128, kLogitRows = 4096;
constexpr int64_t kParameters = int64_t{200} << 20;  // most of a layer's
constexpr int64_t kBf16 = 2, kF32 = 4;
constexpr int kRuns = 7, kCallsARun = 10;
constexpr float kEps = 1e-6F;

template <typename T>
class Array {
 public:
  explicit Array(int64_t count) : memory_(Allocate(count * static_cast<int64_t>(sizeof(T)))) {
    Check(cudaMemset(memory_.data(), 0, memory_.bytes()));
  }
  explicit Array(const std::vector<T>& values) : Array(static_cast<int64_t>(values.size())) {
    Check(cudaMemcpy(memory_.data(), values.data(), memory_.bytes(), cudaMemcpyHostToDevice));
  }
  T* get() const { return Data<T>(memory_); }

 private:
  cuda::DeviceMemory memory_;
};

// Ids as a vocabulary's are met: some much more often than others.
std::vector<int32_t> TokenIds() {
  std::vector<int32_t> ids(kRows);
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform;
  for (int32_t& id : ids) {
    const double u = uniform(random);
    id = static_cast<int32_t>(u * u * u * static_cast<double>(kVocab - 1));
  }
  return ids;
}

class Bench {
 public:
  explicit Bench(const cuda::Context& context) : context_(context) {}

  void Print(const char* name, int64_t bytes, absl::FunctionRef<absl::Status()> op) {
    const double op_ms = MedianMs(context_.stream, kRuns, kCallsARun, [&] { Check(op()); });
    const Array<std::byte> from(bytes / 2), to(bytes / 2);
    const double copy_ms = MedianMs(context_.stream, kRuns, kCallsARun, [&] {
      Check(cudaMemcpyAsync(to.get(), from.get(), bytes / 2, cudaMemcpyDeviceToDevice,
                            context_.stream));
    });
    std::printf("%-26s %7.1f MB %8.4f ms %6.0f GB/s   copy %8.4f ms %6.0f GB/s   %4.0f%%\n", name,
                1e-6 * static_cast<double>(bytes), op_ms, 1e-6 * static_cast<double>(bytes) / op_ms,
                copy_ms, 1e-6 * static_cast<double>(bytes) / copy_ms, 100 * copy_ms / op_ms);
  }

 private:
  const cuda::Context& context_;
};

void Norms(const cuda::Context& context, Bench& bench) {
  const Array<bf16> x(kRows * kHidden), y(kRows * kHidden), dx(kRows * kHidden), w(kHidden);
  const Array<float> rstd(kRows), dw(kHidden);
  const int64_t tensor = kRows * kHidden * kBf16;
  bench.Print("RMSNorm forward", 2 * tensor, [&] {
    return RmsNormForward(context, {x.get(), w.get(), y.get(), rstd.get(), kRows, kHidden, kEps});
  });
  // Reads dy, x and dx; writes dx.
  bench.Print("RMSNorm backward, added", 4 * tensor, [&] {
    return RmsNormBackward(context, {y.get(), x.get(), w.get(), rstd.get(), dx.get(),
                                     WriteMode::kAdd, dw.get(), WriteMode::kAdd, kRows, kHidden});
  });
}

void Heads(const cuda::Context& context, Bench& bench) {
  constexpr int64_t kWidth = kHeads * kHeadDim, kPositions = 1024;
  const Array<bf16> q(kRows * kWidth), raw(kRows * kWidth), dx(kRows * kWidth), w(kHeadDim);
  const Array<float> rstd(kRows * kHeads), dw(kHeadDim), table(kPositions * kHeadDim);
  std::vector<int32_t> rows(kRows);
  for (int64_t row = 0; row < kRows; ++row) rows[row] = static_cast<int32_t>(row % kPositions);
  const Array<int32_t> positions(rows);
  const int64_t tensor = kRows * kWidth * kBf16;
  bench.Print("rotation of q", 2 * tensor, [&] {
    return Rope(context, {q.get(), kWidth, kRows, kHeads, kHeadDim, positions.get(), table.get(),
                          kPositions, RopeDirection::kForward});
  });
  bench.Print("norm of q's heads, forward", 3 * tensor, [&] {
    return HeadNormForward(context, {q.get(), kWidth, raw.get(), kWidth, w.get(), rstd.get(), kRows,
                                     kHeads, kHeadDim, kEps});
  });
  bench.Print("norm of q's heads, backward", 3 * tensor, [&] {
    return HeadNormBackward(
        context, {q.get(), kWidth, raw.get(), kWidth, w.get(), rstd.get(), dx.get(), kWidth,
                  dw.get(), WriteMode::kAdd, kRows, kHeads, kHeadDim});
  });
}

void Bias(const cuda::Context& context, Bench& bench) {
  constexpr int64_t kWidth = 4608;  // q, k and v
  const Array<bf16> dy(kRows * kWidth);
  const Array<float> dbias(kWidth);
  bench.Print("gradient of q,k,v's bias", kRows * kWidth * kBf16, [&] {
    return cuda::ColumnSum(context, "bias", dy.get(), kRows, kWidth, WriteMode::kAdd, dbias.get());
  });
}

void Mlp(const cuda::Context& context, Bench& bench) {
  const Array<bf16> gate_up(2 * kRows * kIntermediate), y(kRows * kIntermediate);
  const int64_t tensor = kRows * kIntermediate * kBf16;
  bench.Print("SwiGLU forward", 3 * tensor, [&] {
    return SwigluForward(context, {gate_up.get(), y.get(), kRows, kIntermediate});
  });
  // In place, as in a step: reads gate_up and dy, writes both.
  bench.Print("SwiGLU backward", 6 * tensor, [&] {
    return SwigluBackward(context,
                          {gate_up.get(), y.get(), y.get(), gate_up.get(), kRows, kIntermediate});
  });
}

void Vocabulary(const cuda::Context& context, Bench& bench) {
  const std::vector<int32_t> tokens = TokenIds();
  const auto distinct = static_cast<int64_t>(std::set(tokens.begin(), tokens.end()).size());
  const Array<int32_t> ids(tokens);
  const int64_t tensor = kRows * kHidden * kBf16;
  {
    const Array<bf16> table(kVocab * kHidden), out(kRows * kHidden);
    const Array<float> dtable(kVocab * kHidden);
    const Array<std::byte> scratch(CudaEmbeddingScratchBytes(kRows));
    bench.Print("embedding forward", tensor + distinct * kHidden * kBf16, [&] {
      return EmbeddingForward(context, {ids.get(), table.get(), out.get(), kRows, kHidden, kVocab});
    });
    bench.Print("embedding backward, added", tensor + 2 * distinct * kHidden * kF32, [&] {
      return EmbeddingBackward(
          context, {ids.get(), out.get(), dtable.get(), kRows, kHidden, kVocab, WriteMode::kAdd,
                    scratch.get(), CudaEmbeddingScratchBytes(kRows)});
    });
  }
  const Array<bf16> logits(kLogitRows * kVocab);
  const Array<double> loss(1);
  const Array<int64_t> labelled(1);
  // A row is longer than what a block holds: the least is to read it twice and to write it.
  bench.Print("cross-entropy, gradient", 3 * kLogitRows * kVocab * kBf16, [&] {
    return CrossEntropy(context, {logits.get(), ids.get(), kLogitRows, kVocab, /*scale=*/1e-6F,
                                  loss.get(), labelled.get(), CrossEntropyMode::kLossAndGradient});
  });
}

void Optimizer(const cuda::Context& context, Bench& bench) {
  const Array<float> sums(kParameters), m(kParameters), v(kParameters);
  const Array<bf16> gradients(kParameters);
  const Array<uint16_t> hi(kParameters);
  const Array<int16_t> lo(kParameters);
  const Array<double> norm(1);
  bench.Print("sum of squares, fp32", kParameters * kF32,
              [&] { return SumOfSquares(context, sums.get(), kParameters, norm.get()); });
  bench.Print("fp32 to bf16", kParameters * (kF32 + kBf16),
              [&] { return RoundToBf16(context, sums.get(), gradients.get(), kParameters); });
  const AdamWArgs update = {.hi = hi.get(),
                            .lo = lo.get(),
                            .m = m.get(),
                            .v = v.get(),
                            .gradient = sums.get(),
                            .count = kParameters,
                            .learning_rate = 1e-5,
                            .beta1 = 0.9,
                            .beta2 = 0.999,
                            .epsilon = 1e-8,
                            .weight_decay = 0.1,
                            .gradient_scale = 1,
                            .bias_correction1 = 0.1,
                            .bias_correction2 = 0.001};
  bench.Print("AdamW", kParameters * 28, [&] { return AdamW(context, update); });
}

}  // namespace
}  // namespace penstock

int main() {
  using namespace penstock;
  const auto context = cuda::OwnedContext::Create();
  Check(context.status());
  Bench bench((*context)->get());
  Norms((*context)->get(), bench);
  Heads((*context)->get(), bench);
  Bias((*context)->get(), bench);
  Mlp((*context)->get(), bench);
  Vocabulary((*context)->get(), bench);
  Optimizer((*context)->get(), bench);
}
