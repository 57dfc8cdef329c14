// Matrix products by cuBLASLt: bf16 operands, sums in f32, repeatable bits.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/bf16.h"
#include "engine/cuda/handle.h"

namespace penstock::cuda {

enum class Operand : uint8_t { kAsStored, kTransposed };
enum class Result : uint8_t { kBf16, kFloat };

// d[m,n] = op(a)[m,k] * op(b)[k,n] + bias[n] + beta * c[m,n], row-major: a is stored [m,k], or
// [k,m] if transposed, and b [k,n], or [n,k]; stored rows have no gaps.
struct MatmulArgs {
  int64_t m, n, k;
  const bf16* a;
  Operand a_operand;
  const bf16* b;
  Operand b_operand;
  const bf16* bias = nullptr;  // only with Result::kBf16
  const void* c = nullptr;     // of the result's type; may be d; null: beta is 0
  void* d;
  Result result;
};

struct MatmulWorkspace {
  std::byte* data;
  int64_t bytes;
};

// Picks an algorithm by shape and card the first time a shape comes and keeps it, so the same shape
// gives the same bits and later steps do not search. Thread-compatible.
class MatmulPlanner {
 public:
  explicit MatmulPlanner(CublasLt lt) : lt_(std::move(lt)) {}
  // REQUIRES: m, n, k >= 1.
  absl::Status Run(cudaStream_t stream, const MatmulWorkspace& workspace, const MatmulArgs& args);

 private:
  using MatmulDesc = Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
  using Layout = Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
  struct Plan {
    MatmulDesc desc;
    Layout a, b, d;
    cublasLtMatmulAlgo_t algo;
  };
  // m, n, k; operands; result; has bias; has c; alignment of all arrays in bytes.
  using Key = std::tuple<int64_t, int64_t, int64_t, Operand, Operand, Result, bool, bool, int>;

  static Key KeyOf(const MatmulArgs& args);
  absl::StatusOr<Plan> MakePlan(const MatmulWorkspace& workspace, const MatmulArgs& args,
                                int alignment);

  CublasLt lt_;
  std::map<Key, Plan> plans_;
};

}  // namespace penstock::cuda
