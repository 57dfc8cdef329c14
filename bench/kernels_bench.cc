// Rates of the CPU ops. AdamW is reported in GB/s and as a share of the triad's rate. The two are
// measured in turn, and as in STREAM each counts with its best run: on a shared machine the
// others measure the neighbours.
//
//   penstock_kernels_bench --benchmark_filter=AdamW
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

#include "bench/triad.h"
#include "benchmark/benchmark.h"
#include "engine/base/thread_pool.h"
#include "engine/kernels/adamw.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/linear.h"
#include "engine/memory/host_memory.h"

namespace penstock {
namespace {

// hi, lo, m and v are read and written (2 * 12), the fp32 gradient is read (4).
constexpr int64_t kAdamWBytes = 28;
constexpr int64_t kParameters = 32 * 1024 * 1024;

int AllThreads() { return static_cast<int>(std::thread::hardware_concurrency()); }

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// Memory as the host store has it: huge pages, touched.
template <typename T>
class Array {
 public:
  explicit Array(int64_t count) : memory_(*HostMemory::Allocate(count * int64_t{sizeof(T)})) {
    std::fill_n(data(), count, T{});
  }
  T* data() const { return reinterpret_cast<T*>(memory_.data()); }

 private:
  HostMemory memory_;
};

class AdamWState {
 public:
  AdamWState() {
    for (int64_t i = 0; i < kParameters; ++i) {
      hi_.data()[i] = static_cast<uint16_t>(0x3C00 + i % 0x100);
      gradient_.data()[i] = 1e-3f * static_cast<float>(i % 17 - 8);
    }
  }

  AdamWArgs Args() const {
    return {.hi = hi_.data(),
            .lo = lo_.data(),
            .m = m_.data(),
            .v = v_.data(),
            .gradient = gradient_.data(),
            .count = kParameters,
            .learning_rate = 1e-4,
            .beta1 = 0.9,
            .beta2 = 0.95,
            .epsilon = 1e-8,
            .weight_decay = 0.1,
            .gradient_scale = 0.5f,
            .bias_correction1 = 0.5,
            .bias_correction2 = 0.25};
  }

  // The triad runs over the same memory; its values do not matter.
  void RunTriad(const cpu::Context& context) const {
    Triad(context, m_.data(), v_.data(), gradient_.data(), kParameters);
  }

  // A triad's leavings are no moments; denormals among them would slow the update.
  void ClearMoments(const cpu::Context& context) const {
    (void)FillFloats(context, m_.data(), 0.0f, kParameters);
    (void)FillFloats(context, v_.data(), 0.0f, kParameters);
  }

 private:
  Array<uint16_t> hi_{kParameters};
  Array<int16_t> lo_{kParameters};
  Array<float> m_{kParameters};
  Array<float> v_{kParameters};
  Array<float> gradient_{kParameters};
};

void BM_AdamW(benchmark::State& state) {
  const CpuIsa isa = static_cast<CpuIsa>(state.range(0));
  if (isa > BestCpuIsa()) return state.SkipWithError("this machine lacks the instruction set");
  static const AdamWState memory;
  ThreadPool pool(static_cast<int>(state.range(1)));
  const cpu::Context context{&pool};
  double adamw_seconds = std::numeric_limits<double>::infinity();
  double triad_seconds = std::numeric_limits<double>::infinity();
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    memory.RunTriad(context);
    triad_seconds = std::min(triad_seconds, Seconds(std::chrono::steady_clock::now() - start));
    memory.ClearMoments(context);
    const auto middle = std::chrono::steady_clock::now();
    if (!AdamW(context, memory.Args(), isa).ok()) state.SkipWithError("AdamW refused");
    const double seconds = Seconds(std::chrono::steady_clock::now() - middle);
    adamw_seconds = std::min(adamw_seconds, seconds);
    state.SetIterationTime(seconds);
  }
  const double adamw_rate = double{kParameters * kAdamWBytes} / adamw_seconds;
  const double triad_rate = double{kParameters * kTriadBytes} / triad_seconds;
  state.counters["adamw_GB/s"] = adamw_rate * 1e-9;
  state.counters["triad_GB/s"] = triad_rate * 1e-9;
  state.counters["share_of_triad"] = adamw_rate / triad_rate;
}
BENCHMARK(BM_AdamW)
    ->ArgNames({"isa", "threads"})
    ->ArgsProduct({{static_cast<int>(CpuIsa::kPortable), static_cast<int>(CpuIsa::kAvx2),
                    static_cast<int>(CpuIsa::kAvx512)},
                   {1, AllThreads()}})
    ->Iterations(20)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// y = x w^T and the two backward products, as a training step has them.
void BM_Linear(benchmark::State& state) {
  const int64_t rows = state.range(0);
  const int64_t in = state.range(1);
  const int64_t out = state.range(2);
  ThreadPool pool(AllThreads());
  const cpu::Context context{&pool};
  const std::vector<float> x(rows * in, 0.5f), w(out * in, 0.25f), dy(rows * out, 0.125f);
  std::vector<float> y(rows * out), dx(rows * in), dw(out * in);
  for (auto _ : state) {
    bool ok = LinearForward(
                  context,
                  {.x = x.data(), .w = w.data(), .y = y.data(), .rows = rows, .in = in, .out = out})
                  .ok();
    ok = ok && LinearBackwardInput(context, {.dy = dy.data(),
                                             .w = w.data(),
                                             .dx = dx.data(),
                                             .rows = rows,
                                             .in = in,
                                             .out = out,
                                             .mode = WriteMode::kOverwrite})
                   .ok();
    ok = ok && LinearBackwardWeight(context, {.dy = dy.data(),
                                              .x = x.data(),
                                              .dw = dw.data(),
                                              .rows = rows,
                                              .in = in,
                                              .out = out,
                                              .mode = WriteMode::kAdd})
                   .ok();
    if (!ok) state.SkipWithError("an op refused");
  }
  const double flops = 6.0 * static_cast<double>(rows * in * out);
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_Linear)
    ->ArgNames({"rows", "in", "out"})
    ->Args({512, 256, 768})
    ->Args({2048, 256, 1376})
    ->Args({1024, 1024, 1024})
    ->Args({1024, 1024, 4096})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void BM_Attention(benchmark::State& state) {
  const int64_t rows = state.range(0);
  const int64_t heads = state.range(1);
  const int64_t dim = state.range(2);
  ThreadPool pool(AllThreads());
  const cpu::Context context{&pool};
  const std::vector<float> q(rows * heads * dim, 0.1f);
  std::vector<float> out(q.size()), lse(rows * heads), dq(q.size()), dk(q.size()), dv(q.size());
  const int32_t starts[] = {0, static_cast<int32_t>(rows)};
  const int64_t stride = heads * dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  std::vector<std::byte> scratch(AttentionScratchBytes(context, rows, dim));
  const int64_t scratch_bytes = static_cast<int64_t>(scratch.size());
  for (auto _ : state) {
    bool ok = AttentionForward(context, {.q = q.data(),
                                         .q_stride = stride,
                                         .k = q.data(),
                                         .k_stride = stride,
                                         .v = q.data(),
                                         .v_stride = stride,
                                         .out = out.data(),
                                         .lse = lse.data(),
                                         .document_starts = starts,
                                         .num_documents = 1,
                                         .rows = rows,
                                         .num_heads = heads,
                                         .num_kv_heads = heads,
                                         .head_dim = dim,
                                         .scale = scale,
                                         .window = 0,
                                         .scratch = scratch.data(),
                                         .scratch_bytes = scratch_bytes})
                  .ok();
    ok = ok && AttentionBackward(context, {.q = q.data(),
                                           .q_stride = stride,
                                           .k = q.data(),
                                           .k_stride = stride,
                                           .v = q.data(),
                                           .v_stride = stride,
                                           .out = out.data(),
                                           .dout = q.data(),
                                           .lse = lse.data(),
                                           .dq = dq.data(),
                                           .dq_stride = stride,
                                           .dk = dk.data(),
                                           .dk_stride = stride,
                                           .dv = dv.data(),
                                           .dv_stride = stride,
                                           .document_starts = starts,
                                           .num_documents = 1,
                                           .rows = rows,
                                           .num_heads = heads,
                                           .num_kv_heads = heads,
                                           .head_dim = dim,
                                           .scale = scale,
                                           .window = 0,
                                           .scratch = scratch.data(),
                                           .scratch_bytes = scratch_bytes})
                   .ok();
    if (!ok) state.SkipWithError("an op refused");
  }
  // Forward 2 products and backward 5, over the causal half; what the two-pass backward computes
  // again is not counted.
  const double flops = 7.0 * static_cast<double>(rows * rows * heads * dim);
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_Attention)
    ->ArgNames({"rows", "heads", "dim"})
    ->Args({256, 8, 32})
    ->Args({1024, 8, 64})
    ->Args({4096, 4, 128})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
