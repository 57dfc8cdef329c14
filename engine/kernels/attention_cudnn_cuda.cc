// A call is three things queued: the tables of its documents, the plan of its shape, and, for a
// document cut by queries, the sums of dk and dv.
//
// Measured on an H100 with cuDNN 9.14, geometry 28/4 x 128, causal: a plan's room (batch, longest
// document) costs nothing when unused, so forward rounds both up and takes all in one call.
#include <algorithm>

#include "engine/base/status.h"
#include "engine/cuda/context.h"
#include "engine/cuda/cudnn_attention.h"
#include "engine/cuda/status.h"
#include "engine/kernels/attention_calls.h"
#include "engine/kernels/attention_cudnn.h"
#include "engine/kernels/attention_tables_cuda.h"

namespace penstock::cuda::attention {
namespace {

using penstock::attention::Call;

constexpr int64_t kAlignment = 16;  // bytes, of each row of a head
constexpr int64_t kShortestHead = 32;

// The parts of scratch.
struct Scratch {
  CallTables tables;
  float* sums;     // dk then dv of a document cut by queries, each [longest, head_dim]
  bf16* summands;  // likewise
  std::byte* workspace;
  int64_t workspace_bytes;
};

template <typename Args>
AttentionShape ShapeOf(const Args& args) {
  return {args.rows, args.num_heads, args.num_kv_heads, args.head_dim};
}

Scratch Divide(void* scratch, int64_t bytes, const AttentionShape& shape, int64_t longest) {
  auto* const base = static_cast<std::byte*>(scratch);
  const int64_t tables = penstock::attention::kTableBytes, pair = 2 * longest * shape.head_dim;
  const int64_t sums = pair * static_cast<int64_t>(sizeof(float));
  const int64_t summands = pair * static_cast<int64_t>(sizeof(bf16));
  const int64_t before = tables + sums + summands;
  return {CallTables(base), reinterpret_cast<float*>(base + tables),
          reinterpret_cast<bf16*>(base + tables + sums), base + before, bytes - before};
}

bool Aligned(std::initializer_list<const void*> arrays, std::initializer_list<int64_t> strides) {
  const auto array_fits = [](const void* array) {
    return reinterpret_cast<uintptr_t>(array) % kAlignment == 0;
  };
  const auto stride_fits = [](int64_t stride) {
    return stride * static_cast<int64_t>(sizeof(bf16)) % kAlignment == 0;
  };
  return std::all_of(arrays.begin(), arrays.end(), array_fits) &&
         std::all_of(strides.begin(), strides.end(), stride_fits);
}

template <typename Args>
bool MayUse(const Context& context, const Args& args) {
  return context.cudnn != nullptr && args.host_document_starts != nullptr &&
         args.head_dim >= kShortestHead && args.rows > 0 && args.num_heads > 0 &&
         Aligned({args.q, args.k, args.v, args.out, args.scratch},
                 {args.q_stride, args.k_stride, args.v_stride, args.head_dim});
}

template <typename Args>
CudnnAttentionShape PlanShape(const Args& args, const Call& call) {
  const int64_t group = args.num_heads / args.num_kv_heads;
  return {.backward = false,
          .batch = call.batch,
          .queries = call.queries,
          .keys = call.keys,
          .num_heads = call.num_kv_heads * group,
          .num_kv_heads = call.num_kv_heads,
          .head_dim = args.head_dim,
          .q_stride = args.q_stride,
          .k_stride = args.k_stride,
          .v_stride = args.v_stride,
          .out_stride = args.num_heads * args.head_dim,
          .lse_stride = args.num_heads,
          .dq_stride = 0,
          .dk_stride = 0,
          .dv_stride = 0,
          .window = args.window,
          .scale = args.scale};
}

CudnnAttentionShape BackwardPlanShape(const AttentionBackwardArgs<bf16>& args, const Call& call) {
  CudnnAttentionShape shape = PlanShape(args, call);
  shape.backward = true;
  shape.dq_stride = args.dq_stride;
  shape.dk_stride = call.summand ? args.head_dim : args.dk_stride;
  shape.dv_stride = call.summand ? args.head_dim : args.dv_stride;
  return shape;
}

template <typename Args>
CudnnAttentionArrays Arrays(const Args& args, const Call& call, const CallTables& tables) {
  const int64_t head = call.first_kv_head * (args.num_heads / args.num_kv_heads);
  const int64_t q_at = head * args.head_dim, k_at = call.first_kv_head * args.head_dim;
  return {.q = args.q + q_at,
          .k = args.k + k_at,
          .v = args.v + k_at,
          .out = args.out + q_at,
          .lse = args.lse + head,
          .dout = nullptr,
          .dq = nullptr,
          .dk = nullptr,
          .dv = nullptr,
          .query_counts = tables.query_counts,
          .key_counts = tables.key_counts,
          .q_offsets = tables.of(CallTables::kQ),
          .k_offsets = tables.of(CallTables::kK),
          .v_offsets = tables.of(CallTables::kV),
          .out_offsets = tables.of(CallTables::kOut),
          .lse_offsets = tables.of(CallTables::kLse),
          .dq_offsets = tables.of(CallTables::kDq),
          .dk_offsets = tables.of(CallTables::kDk),
          .dv_offsets = tables.of(CallTables::kDv)};
}

CallStrides StridesOf(const CudnnAttentionShape& shape) {
  return {shape.q_stride,   shape.k_stride,  shape.v_stride,  shape.out_stride,
          shape.lse_stride, shape.dq_stride, shape.dk_stride, shape.dv_stride};
}

// Whether cuDNN has a plan for this shape that works in `bytes`. Errors other than a refusal are
// not to be hidden by falling back.
absl::Status Prepare(const Context& context, const CudnnAttentionShape& shape, int64_t bytes,
                     bool& usable) {
  const absl::StatusOr<int64_t> wanted = context.cudnn->Prepare(shape);
  if (!wanted.ok() && !absl::IsUnimplemented(wanted.status())) return wanted.status();
  usable = usable && wanted.ok() && *wanted <= bytes;
  return absl::OkStatus();
}

absl::Status RunForwardCall(const Context& context, const AttentionForwardArgs<bf16>& args,
                            const Call& call, const Scratch& scratch) {
  const CudnnAttentionShape shape = PlanShape(args, call);
  PENSTOCK_RETURN_IF_ERROR(FillTables(call, StridesOf(shape), scratch.tables, context.stream));
  return context.cudnn->Run(shape, Arrays(args, call, scratch.tables), scratch.workspace);
}

// dk or dv of a call's summand: its part in bf16 is added to the sum of its document.
absl::Status Sum(const Context& context, const Call& call, int64_t head_dim, const bf16* summands,
                 float* sums, bf16* out, int64_t stride) {
  const auto& part = call.parts[0];
  PENSTOCK_RETURN_IF_ERROR(AddSummands(summands,
                                       sums + (part.key_begin - call.document_begin) * head_dim,
                                       part.key_count * head_dim, context.stream));
  if (!call.last_summand) return absl::OkStatus();
  return StoreSums(sums, call.document_rows, head_dim,
                   out + call.first_kv_head * head_dim + call.document_begin * stride, stride,
                   context.stream);
}

absl::Status RunBackwardCall(const Context& context, const AttentionBackwardArgs<bf16>& args,
                             const Call& call, const Scratch& scratch) {
  const CudnnAttentionShape shape = BackwardPlanShape(args, call);
  const int64_t head_dim = args.head_dim, kv_at = call.first_kv_head * head_dim;
  CudnnAttentionArrays arrays = Arrays(args, call, scratch.tables);
  const int64_t q_at = kv_at * (args.num_heads / args.num_kv_heads);
  const int64_t each = call.keys * head_dim;  // of sums and summands
  arrays.dout = args.dout + q_at;
  arrays.dq = args.dq + q_at;
  arrays.dk = call.summand ? scratch.summands : args.dk + kv_at;
  arrays.dv = call.summand ? scratch.summands + each : args.dv + kv_at;
  PENSTOCK_RETURN_IF_ERROR(FillTables(call, StridesOf(shape), scratch.tables, context.stream));
  PENSTOCK_RETURN_IF_ERROR(context.cudnn->Run(shape, arrays, scratch.workspace));
  if (!call.summand) return absl::OkStatus();
  if (call.first_summand) {
    PENSTOCK_RETURN_IF_ERROR(
        CudaStatus(cudaMemsetAsync(scratch.sums, 0, 2 * each * sizeof(float), context.stream),
                   "attention: clearing sums"));
  }
  PENSTOCK_RETURN_IF_ERROR(
      Sum(context, call, head_dim, scratch.summands, scratch.sums, args.dk, args.dk_stride));
  return Sum(context, call, head_dim, scratch.summands + each, scratch.sums + each, args.dv,
             args.dv_stride);
}

// Rows of sums that the longest document needs: 0 if none is cut by queries.
int64_t SummandRows(const AttentionShape& shape, const int32_t* starts, int64_t num_documents,
                    int64_t score_bytes) {
  int64_t longest = 0;
  for (int64_t document = 0; document < num_documents; ++document) {
    longest = std::max<int64_t>(longest, starts[document + 1] - starts[document]);
  }
  if (longest == 0) return 0;
  const int64_t length_class = penstock::attention::LengthClass(longest);
  const int64_t bytes = penstock::attention::SummandBytes(shape, length_class, score_bytes);
  return bytes == 0 ? 0 : length_class;
}

}  // namespace

absl::StatusOr<bool> ForwardByCudnn(const Context& context,
                                    const AttentionForwardArgs<bf16>& args) {
  if (!MayUse(context, args)) return false;
  const AttentionShape shape = ShapeOf(args);
  const Scratch scratch = Divide(args.scratch, args.scratch_bytes, shape, 0);
  bool usable = scratch.workspace_bytes >= 0;
  const auto for_each = [&](penstock::attention::VisitCall visit) {
    return penstock::attention::ForEachForwardCall(shape, args.host_document_starts,
                                                   args.num_documents, visit);
  };
  PENSTOCK_RETURN_IF_ERROR(for_each([&](const Call& call) {
    return Prepare(context, PlanShape(args, call), scratch.workspace_bytes, usable);
  }));
  if (!usable) return false;
  PENSTOCK_RETURN_IF_ERROR(
      for_each([&](const Call& call) { return RunForwardCall(context, args, call, scratch); }));
  return true;
}

absl::StatusOr<bool> BackwardByCudnn(const Context& context,
                                     const AttentionBackwardArgs<bf16>& args, int64_t score_bytes) {
  if (!MayUse(context, args) || !Aligned({args.dout, args.dq, args.dk, args.dv},
                                         {args.dq_stride, args.dk_stride, args.dv_stride})) {
    return false;
  }
  const AttentionShape shape = ShapeOf(args);
  const Scratch scratch =
      Divide(args.scratch, args.scratch_bytes, shape,
             SummandRows(shape, args.host_document_starts, args.num_documents, score_bytes));
  bool usable = scratch.workspace_bytes >= 0;
  const auto for_each = [&](penstock::attention::VisitCall visit) {
    return penstock::attention::ForEachBackwardCall(shape, args.window, args.host_document_starts,
                                                    args.num_documents, score_bytes, visit);
  };
  PENSTOCK_RETURN_IF_ERROR(for_each([&](const Call& call) {
    return Prepare(context, BackwardPlanShape(args, call), scratch.workspace_bytes, usable);
  }));
  if (!usable) return false;
  PENSTOCK_RETURN_IF_ERROR(
      for_each([&](const Call& call) { return RunBackwardCall(context, args, call, scratch); }));
  return true;
}

}  // namespace penstock::cuda::attention
