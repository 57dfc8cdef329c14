// Rates of the CPU ops and of what a job's start does on the host. AdamW, with its moments in each
// type, is reported in parameters/s, in GB/s and as a share of the triad's rate. The two are
// measured in turn, and as in STREAM each counts with its best run: on a shared machine the others
// measure the neighbours.
//
//   penstock_kernels_bench --benchmark_filter=AdamW
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <thread>
#include <type_traits>
#include <vector>

#include "bench/geometry.h"
#include "bench/triad.h"
#include "benchmark/benchmark.h"
#include "engine/base/bf16.h"
#include "engine/base/thread_pool.h"
#include "engine/kernels/adamw.h"
#include "engine/kernels/adamw_small_moments.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/linear.h"
#include "engine/memory/host_memory.h"
#include "engine/memory/host_store.h"
#include "engine/model/layout.h"
#include "engine/plan/moment_type.h"
#include "engine/train/random_init.h"

namespace penstock {
namespace {

// hi, lo, m and v are read and written, the gradient is read.
template <typename Gradient, MomentType kType>
constexpr double kAdamWBytes = 2 * (4 + static_cast<double>(MomentBytes(kType, kMomentBlock)) /
                                            kMomentBlock) +
                               sizeof(Gradient);
// 96 MiB of state and up to 32 MiB of gradients, well beyond the caches, yet quick enough that the
// best run of a busy machine was not interrupted.
constexpr int64_t kParameters = 8 * 1024 * 1024;

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

template <typename Gradient, MomentType kType, int64_t kCount = kParameters>
class AdamWState {
 public:
  AdamWState() {
    for (int64_t i = 0; i < kCount; ++i) {
      hi_.data()[i] = static_cast<uint16_t>(0x3C00 + i % 0x100);
      const float gradient = 1e-3f * static_cast<float>(i % 17 - 8);
      if constexpr (std::is_same_v<Gradient, bf16>) {
        gradient_.data()[i] = ToBf16(gradient);
      } else {
        gradient_.data()[i] = gradient;
      }
    }
  }

  absl::Status Update(const cpu::Context& context, CpuIsa isa,
                      UpdatePart part = UpdatePart::kAll) const {
    AdamWArgs args = Args();
    args.part = part;
    if constexpr (kType == MomentType::kFloat32) {
      args.m = reinterpret_cast<float*>(m_.data());
      args.v = reinterpret_cast<float*>(v_.data());
      return AdamW(context, args, isa);
    } else {
      return AdamWSmallMoments(context,
                               {.update = args,
                                .type = kType,
                                .m = m_.data(),
                                .v = v_.data(),
                                .m_scales = m_scales_.data(),
                                .v_scales = v_scales_.data(),
                                .stream = {}},
                               isa);
    }
  }

 private:
  AdamWArgs Args() const {
    AdamWArgs args = {.hi = hi_.data(),
                      .lo = lo_.data(),
                      .m = nullptr,
                      .v = nullptr,
                      .count = kCount,
                      .learning_rate = 1e-4,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .epsilon = 1e-8,
                      .weight_decay = 0.1,
                      .gradient_scale = 0.5f,
                      .bias_correction1 = 0.5,
                      .bias_correction2 = 0.25};
    if constexpr (std::is_same_v<Gradient, bf16>) {
      args.gradient_bf16 = gradient_.data();
    } else {
      args.gradient = gradient_.data();
    }
    return args;
  }

  Array<uint16_t> hi_{kCount};
  Array<int16_t> lo_{kCount};
  Array<std::byte> m_{kCount * MomentElementBytes(kType)};
  Array<std::byte> v_{kCount * MomentElementBytes(kType)};
  Array<float> m_scales_{MomentBlocks(kCount)};
  Array<float> v_scales_{MomentBlocks(kCount)};
  Array<Gradient> gradient_{kCount};
};

struct TriadState {
  Array<float> a{kParameters};
  Array<float> b{kParameters};
  Array<float> c{kParameters};
};

template <typename Gradient, MomentType kType>
void BM_AdamW(benchmark::State& state) {
  const CpuIsa isa = static_cast<CpuIsa>(state.range(0));
  if (isa > BestCpuIsa()) return state.SkipWithError("this machine lacks the instruction set");
  static const AdamWState<Gradient, kType> adamw;
  static const TriadState triad;
  const int threads = static_cast<int>(state.range(1));
  ThreadPool pool(threads, PlacesForPool(threads));
  const cpu::Context context{&pool};
  double adamw_seconds = std::numeric_limits<double>::infinity();
  double triad_seconds = std::numeric_limits<double>::infinity();
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    Triad(context, triad.a.data(), triad.b.data(), triad.c.data(), kParameters);
    triad_seconds = std::min(triad_seconds, Seconds(std::chrono::steady_clock::now() - start));
    const auto middle = std::chrono::steady_clock::now();
    if (!adamw.Update(context, isa).ok()) state.SkipWithError("AdamW refused");
    const double seconds = Seconds(std::chrono::steady_clock::now() - middle);
    adamw_seconds = std::min(adamw_seconds, seconds);
    state.SetIterationTime(seconds);
  }
  const double parameter_rate = kParameters / adamw_seconds;
  const double adamw_rate = parameter_rate * kAdamWBytes<Gradient, kType>;
  const double triad_rate = double{kParameters * kTriadBytes} / triad_seconds;
  state.counters["G_parameters/s"] = parameter_rate * 1e-9;
  state.counters["adamw_GB/s"] = adamw_rate * 1e-9;
  state.counters["triad_GB/s"] = triad_rate * 1e-9;
  state.counters["share_of_triad"] = adamw_rate / triad_rate;
}
void AdamWCases(benchmark::internal::Benchmark* cases) {
  cases->ArgNames({"isa", "threads"})
      ->ArgsProduct({{static_cast<int>(CpuIsa::kPortable), static_cast<int>(CpuIsa::kAvx2),
                      static_cast<int>(CpuIsa::kAvx512)},
                     {1, AllThreads()}})
      ->Iterations(300)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}
BENCHMARK_TEMPLATE(BM_AdamW, float, MomentType::kFloat32)->Apply(AdamWCases);
BENCHMARK_TEMPLATE(BM_AdamW, bf16, MomentType::kFloat32)->Apply(AdamWCases);
BENCHMARK_TEMPLATE(BM_AdamW, bf16, MomentType::kBfloat16)->Apply(AdamWCases);
BENCHMARK_TEMPLATE(BM_AdamW, bf16, MomentType::kInt8Blocks)->Apply(AdamWCases);

// An update and its parts on all threads, over arrays of 1.8 GiB, which no cache holds.
void BM_AdamWPart(benchmark::State& state) {
  static const AdamWState<bf16, MomentType::kFloat32, int64_t{128} << 20> adamw;
  const auto part = static_cast<UpdatePart>(state.range(0));
  ThreadPool pool(AllThreads(), PlacesForPool(AllThreads()));
  for (auto _ : state) {
    if (!adamw.Update({&pool}, BestCpuIsa(), part).ok()) state.SkipWithError("AdamW refused");
  }
  state.SetItemsProcessed(state.iterations() * (int64_t{128} << 20));
}
BENCHMARK(BM_AdamWPart)
    ->ArgName("part")
    ->DenseRange(static_cast<int>(UpdatePart::kAll), static_cast<int>(UpdatePart::kMoments))
    ->UseRealTime()
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

// One document, as many key heads as query heads; q serves as k, v and dout too.
struct AttentionCase {
  AttentionCase(const cpu::Context& context, int64_t rows, int64_t heads, int64_t dim)
      : q(rows * heads * dim, 0.1f),
        out(q.size()),
        lse(rows * heads),
        dq(q.size()),
        dk(q.size()),
        dv(q.size()),
        scratch(CpuAttentionScratchBytes(context.pool->size())),
        starts{0, static_cast<int32_t>(rows)},
        rows(rows),
        heads(heads),
        dim(dim) {}

  AttentionForwardArgs<float> Forward() {
    return {.q = q.data(),
            .q_stride = heads * dim,
            .k = q.data(),
            .k_stride = heads * dim,
            .v = q.data(),
            .v_stride = heads * dim,
            .out = out.data(),
            .lse = lse.data(),
            .document_starts = starts,
            .num_documents = 1,
            .rows = rows,
            .num_heads = heads,
            .num_kv_heads = heads,
            .head_dim = dim,
            .scale = 1.0f / std::sqrt(static_cast<float>(dim)),
            .window = 0,
            .scratch = scratch.data(),
            .scratch_bytes = static_cast<int64_t>(scratch.size())};
  }

  AttentionBackwardArgs<float> Backward() {
    return {.q = q.data(),
            .q_stride = heads * dim,
            .k = q.data(),
            .k_stride = heads * dim,
            .v = q.data(),
            .v_stride = heads * dim,
            .out = out.data(),
            .dout = q.data(),
            .lse = lse.data(),
            .dq = dq.data(),
            .dq_stride = heads * dim,
            .dk = dk.data(),
            .dk_stride = heads * dim,
            .dv = dv.data(),
            .dv_stride = heads * dim,
            .document_starts = starts,
            .num_documents = 1,
            .rows = rows,
            .num_heads = heads,
            .num_kv_heads = heads,
            .head_dim = dim,
            .scale = 1.0f / std::sqrt(static_cast<float>(dim)),
            .window = 0,
            .scratch = scratch.data(),
            .scratch_bytes = static_cast<int64_t>(scratch.size())};
  }

  std::vector<float> q, out, lse, dq, dk, dv;
  std::vector<std::byte> scratch;
  int32_t starts[2];
  int64_t rows, heads, dim;
};

void BM_Attention(benchmark::State& state) {
  ThreadPool pool(AllThreads());
  const cpu::Context context{&pool};
  AttentionCase attention(context, state.range(0), state.range(1), state.range(2));
  for (auto _ : state) {
    const bool ok = AttentionForward(context, attention.Forward()).ok() &&
                    AttentionBackward(context, attention.Backward()).ok();
    if (!ok) state.SkipWithError("an op refused");
  }
  // Forward 2 products and backward 5, over the causal half; what the two-pass backward computes
  // again is not counted.
  const double flops =
      7.0 * static_cast<double>(attention.rows * attention.rows * attention.heads * attention.dim);
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

// What a job's start costs for every byte of its store: clearing pages.
void BM_TouchPages(benchmark::State& state) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  const int threads = static_cast<int>(state.range(0));
  ThreadPool pool(threads, PlacesForPool(threads));
  for (auto _ : state) {
    const HostMemory memory = *HostMemory::Allocate(kBytes);
    const auto start = std::chrono::steady_clock::now();
    TouchPages({memory.data(), static_cast<size_t>(kBytes)}, pool);
    state.SetIterationTime(Seconds(std::chrono::steady_clock::now() - start));
  }
  state.SetBytesProcessed(state.iterations() * kBytes);
}
BENCHMARK(BM_TouchPages)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(AllThreads())
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// Random weights into touched memory.
void BM_RandomWeights(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  ThreadPool pool(threads, PlacesForPool(threads));
  const ModelSpec spec = *FindGeometry("qwen2.5-0.5b");
  const ModelLayout layout = MakeLayout(spec);
  const auto store = *HostStore::Create(layout, OptimizerState::kNone, GradientPlane::kNone);
  store->TouchPages(pool);
  for (auto _ : state) InitializeWeights(spec, /*seed=*/1, *store, pool);
  state.counters["parameters/s"] = benchmark::Counter(
      static_cast<double>(layout.parameter_count), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_RandomWeights)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(AllThreads())
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
