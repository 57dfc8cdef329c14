#include "engine/kernels/blas.h"

#include <algorithm>

#include "cblas.h"

namespace penstock {
namespace {

CBLAS_TRANSPOSE ToCblas(Transpose transpose) {
  return transpose == Transpose::kYes ? CblasTrans : CblasNoTrans;
}

// BLAS refuses a stride of 0, which an empty matrix may have.
blasint ToStride(int64_t stride) { return static_cast<blasint>(std::max<int64_t>(1, stride)); }

}  // namespace

void Sgemm(int64_t m, int64_t n, int64_t k, float alpha, const MatrixView& a, const MatrixView& b,
           float beta, float* c, int64_t c_stride) {
  [[maybe_unused]] static const bool single_threaded = [] {
    openblas_set_num_threads(1);
    return true;
  }();
  if (m == 0 || n == 0) return;
  if (k == 0) {
    // Written out, since libraries differ on whether an empty sum still applies beta.
    for (int64_t row = 0; row < m; ++row) {
      float* values = c + row * c_stride;
      if (beta == 0.0f) std::fill_n(values, n, 0.0f);
      if (beta != 0.0f && beta != 1.0f) {
        for (int64_t col = 0; col < n; ++col) values[col] *= beta;
      }
    }
    return;
  }
  cblas_sgemm(CblasRowMajor, ToCblas(a.transpose), ToCblas(b.transpose), static_cast<blasint>(m),
              static_cast<blasint>(n), static_cast<blasint>(k), alpha, a.data, ToStride(a.stride),
              b.data, ToStride(b.stride), beta, c, ToStride(c_stride));
}

}  // namespace penstock
