// One sgemm on the calling thread. OpenBLAS's own threads stay off: ops cut their work into
// tasks of fixed shape for our pool, so results do not depend on the number of threads.
#pragma once

#include <cstdint>

namespace penstock {

enum class Transpose : uint8_t { kNo, kYes };

struct MatrixView {
  const float* data;
  int64_t stride;  // elements between stored rows
  Transpose transpose = Transpose::kNo;
};

// c[m,n] = alpha * op(a)[m,k] * op(b)[k,n] + beta * c. With beta 0, c is only written.
// REQUIRES: sizes and strides below 2^31; alpha != 0.
void Sgemm(int64_t m, int64_t n, int64_t k, float alpha, const MatrixView& a, const MatrixView& b,
           float beta, float* c, int64_t c_stride);

}  // namespace penstock
