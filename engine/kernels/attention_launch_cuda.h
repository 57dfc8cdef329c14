// The checks and the choice of kernel that attention's forward and backward op share. Internal to
// attention*_cuda.cu.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/contract.h"

namespace penstock::cuda::attention {

template <typename Args>
absl::Status CheckContract(std::string_view op, const Args& args) {
  PENSTOCK_RETURN_IF_ERROR(RequireSizes(op, {{"rows", args.rows},
                                             {"num_documents", args.num_documents},
                                             {"num_heads", args.num_heads},
                                             {"num_kv_heads", args.num_kv_heads},
                                             {"head_dim", args.head_dim},
                                             {"window", args.window},
                                             {"q_stride", args.q_stride},
                                             {"k_stride", args.k_stride},
                                             {"v_stride", args.v_stride}}));
  PENSTOCK_RETURN_IF_ERROR(
      Require(args.num_kv_heads >= 1 && args.num_heads % args.num_kv_heads == 0, op,
              "num_heads a multiple of num_kv_heads",
              {{"num_heads", args.num_heads}, {"num_kv_heads", args.num_kv_heads}}));
  if (args.head_dim > kLargestCudaHeadDim) {
    return Error(
        absl::StatusCode::kUnimplemented, reason::kFeatureUnsupported,
        absl::StrCat(std::string(op), ": head_dim is ", args.head_dim,
                     "; on CUDA it may be at most ", kLargestCudaHeadDim, "; use the CPU backend"));
  }
  PENSTOCK_RETURN_IF_ERROR(Require(args.document_starts != nullptr, op, "document_starts"));
  return Require(args.rows == 0 || (args.q != nullptr && args.k != nullptr && args.v != nullptr &&
                                    args.out != nullptr && args.lse != nullptr),
                 op, "arrays q, k, v, out and lse");
}

}  // namespace penstock::cuda::attention
