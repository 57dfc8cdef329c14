// What cuBLASLt's algorithms give in a row of products, where the card is at its limit of power.
// The library orders them by what it guesses for one product; engine/cuda/matmul.cc picks by tile.
//
//   penstock_matmul_bench      the products of a layer of Qwen2.5 7B and 14B, 8,192 tokens
//
// A line a product: the library's first choice, then the best, each with its median time.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "bench/device_bench.h"
#include "engine/base/check.h"
#include "engine/cuda/device_memory.h"
#include "engine/cuda/handle.h"
#include "engine/cuda/status.h"

namespace penstock {
namespace {

constexpr int kCandidates = 16, kRuns = 3, kShown = 4;
constexpr double kSecondsARun = 0.06, kWarmUpSeconds = 0.6, kGuessedFlops = 700e12;
constexpr size_t kWorkspaceBytes = size_t{64} << 20;

// Row-major d[m,n] (+)= a[m,k] b[k,n]; a is stored [k,m] if transposed, b [n,k].
struct Product {
  const char* name;
  int64_t m, n, k;
  bool a_transposed, b_transposed;
  cudaDataType_t result;
  bool adds;
};

constexpr int64_t kTokens = 8192;
constexpr Product kProducts[] = {
    {"7B gate and up, forward", kTokens, 37888, 3584, false, true, CUDA_R_16BF, false},
    {"7B down, forward", kTokens, 3584, 18944, false, true, CUDA_R_16BF, true},
    {"7B down, dx", kTokens, 18944, 3584, false, false, CUDA_R_16BF, false},
    {"7B gate and up, dx", kTokens, 3584, 37888, false, false, CUDA_R_16BF, false},
    {"7B gate and up, dw", 37888, 3584, kTokens, true, false, CUDA_R_32F, true},
    {"7B down, dw", 3584, 18944, kTokens, true, false, CUDA_R_32F, true},
    {"7B qkv, dw", 4608, 3584, kTokens, true, false, CUDA_R_32F, true},
    {"14B gate and up, dw", 27648, 5120, kTokens, true, false, CUDA_R_32F, true},
    {"14B down, dw", 5120, 13824, kTokens, true, false, CUDA_R_32F, true},
};

using penstock::Check;
void Check(cublasStatus_t status) { Check(cuda::CublasStatus(status, "cuBLASLt")); }

cublasLtMatrixLayout_t LayoutOf(cudaDataType_t type, bool transposed, int64_t rows, int64_t cols) {
  if (transposed) std::swap(rows, cols);
  cublasLtMatrixLayout_t layout = nullptr;
  Check(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(cols),
                                   static_cast<uint64_t>(rows), cols));
  return layout;
}

int TileOf(const cublasLtMatmulAlgo_t& algo) {
  int tile = 0;
  size_t written = 0;
  Check(cublasLtMatmulAlgoConfigGetAttribute(&algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile,
                                             sizeof(tile), &written));
  return tile;
}

// The operands' order is that of engine/cuda/matmul.cc: cuBLASLt is column-major.
class Bench {
 public:
  explicit Bench(const Product& product)
      : product_(product),
        a_(Allocate(product.m * product.k * 2)),
        b_(Allocate(product.k * product.n * 2)),
        d_(Allocate(product.m * product.n * (product.result == CUDA_R_32F ? 4 : 2))),
        workspace_(Allocate(kWorkspaceBytes)) {
    FillRandom(a_);
    FillRandom(b_);
    Check(cudaMemset(d_.data(), 0, d_.bytes()));
    cublasLtHandle_t lt = nullptr;
    Check(cublasLtCreate(&lt));
    lt_ = cuda::CublasLt(lt);
    Check(cublasLtMatmulDescCreate(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t a = product.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t b = product.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    Check(cublasLtMatmulDescSetAttribute(desc_, CUBLASLT_MATMUL_DESC_TRANSA, &b, sizeof(b)));
    Check(cublasLtMatmulDescSetAttribute(desc_, CUBLASLT_MATMUL_DESC_TRANSB, &a, sizeof(a)));
    a_layout_ = LayoutOf(CUDA_R_16BF, product.a_transposed, product.m, product.k);
    b_layout_ = LayoutOf(CUDA_R_16BF, product.b_transposed, product.k, product.n);
    d_layout_ = LayoutOf(product.result, false, product.m, product.n);
  }

  void Print() {
    FindAlgorithms();
    const double flops = 2.0 * static_cast<double>(product_.m) * static_cast<double>(product_.n) *
                         static_cast<double>(product_.k);
    const int products = std::max(1, static_cast<int>(kSecondsARun * kGuessedFlops / flops));
    for (int i = 0; i < products * kWarmUpSeconds / kSecondsARun; ++i) Run(0);
    std::vector<std::vector<double>> times(found_.size());
    for (int run = 0; run < kRuns; ++run) {
      for (size_t i = 0; i < found_.size(); ++i) {
        times[i].push_back(MedianMs(nullptr, 1, products, [&] { Run(i); }));
      }
    }
    std::vector<std::pair<double, size_t>> order;
    for (size_t i = 0; i < times.size(); ++i) {
      std::sort(times[i].begin(), times[i].end());
      order.emplace_back(times[i][kRuns / 2], i);
    }
    const double first = order.front().first;
    std::sort(order.begin(), order.end());
    std::printf("%-24s first choice: tile %d %.3f ms %.0f TFLOP/s; best:", product_.name,
                TileOf(found_[0].algo), first, flops / first * 1e-9);
    for (size_t i = 0; i < std::min<size_t>(kShown, order.size()); ++i) {
      std::printf(" tile %d %.3f ms %.0f;", TileOf(found_[order[i].second].algo), order[i].first,
                  flops / order[i].first * 1e-9);
    }
    std::printf("\n");
  }

 private:
  void FindAlgorithms() {
    cublasLtMatmulPreference_t preference = nullptr;
    Check(cublasLtMatmulPreferenceCreate(&preference));
    Check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &kWorkspaceBytes, sizeof(kWorkspaceBytes)));
    found_.resize(kCandidates);
    int count = 0;
    Check(cublasLtMatmulAlgoGetHeuristic(lt_.get(), desc_, b_layout_, a_layout_, d_layout_,
                                         d_layout_, preference, kCandidates, found_.data(),
                                         &count));
    PENSTOCK_CHECK(count > 0, "cuBLASLt has no algorithm");
    found_.resize(count);
  }

  void Run(size_t index) {
    const float alpha = 1, beta = product_.adds ? 1 : 0;
    Check(cublasLtMatmul(lt_.get(), desc_, &alpha, b_.data(), b_layout_, a_.data(), a_layout_,
                         &beta, d_.data(), d_layout_, d_.data(), d_layout_, &found_[index].algo,
                         workspace_.data(), kWorkspaceBytes, nullptr));
  }

  const Product& product_;
  cuda::DeviceMemory a_, b_, d_, workspace_;
  cuda::CublasLt lt_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_layout_ = nullptr, b_layout_ = nullptr, d_layout_ = nullptr;
  std::vector<cublasLtMatmulHeuristicResult_t> found_;
};

}  // namespace
}  // namespace penstock

int main() {
  for (const penstock::Product& product : penstock::kProducts) penstock::Bench(product).Print();
}
