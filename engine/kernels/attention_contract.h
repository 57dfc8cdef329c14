// The checks that the forward and the backward op share. Internal to attention*_cpu.cc.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/contract.h"

namespace penstock::attention {

inline absl::Status CheckDocuments(std::string_view op, const int32_t* starts,
                                   int64_t num_documents, int64_t rows) {
  PENSTOCK_RETURN_IF_ERROR(Require(starts != nullptr, op, "document_starts"));
  PENSTOCK_RETURN_IF_ERROR(
      Require(starts[0] == 0 && starts[num_documents] == rows, op, "document_starts from 0 to rows",
              {{"first", starts[0]}, {"last", starts[num_documents]}, {"rows", rows}}));
  for (int64_t document = 0; document < num_documents; ++document) {
    PENSTOCK_RETURN_IF_ERROR(Require(starts[document] <= starts[document + 1], op,
                                     "ascending document_starts",
                                     {{"document", document},
                                      {"start", starts[document]},
                                      {"next start", starts[document + 1]}}));
  }
  return absl::OkStatus();
}

template <typename Args>
absl::Status CheckContract(std::string_view op, const cpu::Context& context, const Args& args) {
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
  PENSTOCK_RETURN_IF_ERROR(CheckDocuments(op, args.document_starts, args.num_documents, args.rows));
  const int64_t wanted = CpuAttentionScratchBytes(context.pool->size());
  PENSTOCK_RETURN_IF_ERROR(Require(args.scratch != nullptr && args.scratch_bytes >= wanted, op,
                                   "CpuAttentionScratchBytes() of scratch",
                                   {{"scratch_bytes", args.scratch_bytes}, {"wanted", wanted}}));
  return Require(args.rows == 0 || (args.q != nullptr && args.k != nullptr && args.v != nullptr &&
                                    args.out != nullptr && args.lse != nullptr),
                 op, "arrays q, k, v, out and lse");
}

}  // namespace penstock::attention
