#include <algorithm>
#include <cstddef>
#include <cstring>

#include "engine/base/status.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/isa_dispatch.h"
#include "engine/kernels/parallel.h"
#include "engine/memory/planes.h"

namespace penstock {
namespace {

constexpr int64_t kBlock = 64 * 1024;  // elements

absl::Status RequireArrays(std::string_view op, int64_t count, bool present) {
  PENSTOCK_RETURN_IF_ERROR(Require(count >= 0, op, "count >= 0", {{"count", count}}));
  return Require(count == 0 || present, op, "arrays that are not null");
}

struct JoinRange {
  PENSTOCK_ISA_BODY void Run(const uint16_t* __restrict hi, const int16_t* __restrict lo,
                             float* __restrict out, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = Join(hi[i], lo[i]);
  }
};

}  // namespace

absl::Status JoinPlanes(const cpu::Context& context, const uint16_t* hi, const int16_t* lo,
                        int64_t count, float* out) {
  PENSTOCK_RETURN_IF_ERROR(
      RequireArrays("JoinPlanes", count, hi != nullptr && lo != nullptr && out != nullptr));
  ParallelBlocks(context, count, kBlock, [&](int64_t begin, int64_t end) {
    RunForIsa<JoinRange>(hi, lo, out, begin, end);
  });
  return absl::OkStatus();
}

absl::Status CopyBytes(const cpu::Context& context, void* destination, const void* source,
                       int64_t bytes) {
  PENSTOCK_RETURN_IF_ERROR(
      RequireArrays("CopyBytes", bytes, destination != nullptr && source != nullptr));
  ParallelBlocks(context, bytes, kBlock * 4, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<std::byte*>(destination) + begin,
                static_cast<const std::byte*>(source) + begin, end - begin);
  });
  return absl::OkStatus();
}

absl::Status FillFloats(const cpu::Context& context, float* destination, float value,
                        int64_t count) {
  PENSTOCK_RETURN_IF_ERROR(RequireArrays("FillFloats", count, destination != nullptr));
  ParallelBlocks(context, count, kBlock, [&](int64_t begin, int64_t end) {
    std::fill(destination + begin, destination + end, value);
  });
  return absl::OkStatus();
}

}  // namespace penstock
