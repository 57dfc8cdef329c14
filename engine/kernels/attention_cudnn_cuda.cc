// A call is two things queued: the tables of its documents and the plan of its shape. A plan's room
// (batch, longest document) costs no time where it is unused (H100, cuDNN 9.14), so forward rounds
// both up and takes all documents in one call.
#include <algorithm>

#include "engine/base/status.h"
#include "engine/cuda/context.h"
#include "engine/cuda/cudnn_attention.h"
#include "engine/cuda/status.h"
#include "engine/kernels/attention_blocks_cuda.h"
#include "engine/kernels/attention_calls.h"
#include "engine/kernels/attention_cudnn.h"
#include "engine/kernels/attention_tables_cuda.h"

namespace penstock::cuda::attention {
namespace {

using penstock::attention::Call;

constexpr int64_t kAlignment = 16;  // bytes, of each row of a head
constexpr int64_t kShortestHead = 32;

struct Scratch {
  CallTables tables;
  std::byte* rest;  // a plan's workspace, or our own kernels' scratch
  int64_t rest_bytes;
};

template <typename Args>
AttentionShape ShapeOf(const Args& args) {
  return {args.rows, args.num_heads, args.num_kv_heads, args.head_dim};
}

template <typename Args>
Scratch Divide(const Args& args) {
  auto* const base = static_cast<std::byte*>(args.scratch);
  return {CallTables(base), base + penstock::attention::kTableBytes,
          args.scratch_bytes - penstock::attention::kTableBytes};
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
         args.head_dim >= kShortestHead && args.head_dim <= kLargestCudnnHeadDim && args.rows > 0 &&
         args.num_heads > 0 && args.scratch_bytes > penstock::attention::kTableBytes &&
         args.k_stride == args.v_stride &&
         Aligned({args.q, args.k, args.v, args.out, args.scratch},
                 {args.q_stride, args.k_stride, args.head_dim});
}

// Without groups of heads, cuDNN 9.14 was seen to take a gradient's offsets from the array that it
// is the gradient of; so the two must be laid out alike.
bool MayUseBackward(const Context& context, const AttentionBackwardArgs<bf16>& args) {
  return MayUse(context, args) && args.dq_stride == args.q_stride &&
         args.dk_stride == args.k_stride && args.dv_stride == args.v_stride &&
         args.scratch_bytes - penstock::attention::kTableBytes >=
             LeastCudaAttentionScratchBytes(args.rows, args.num_heads) &&
         Aligned({args.dout, args.dq, args.dk, args.dv}, {});
}

template <typename Args>
CudnnAttentionShape PlanShape(const Args& args, const Call& call) {
  const int64_t group = args.num_heads / args.num_kv_heads;
  return {.backward = false,
          .causal = true,
          .batch = call.batch,
          .longest = call.longest,
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
  shape.dk_stride = args.dk_stride;
  shape.dv_stride = args.dv_stride;
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
          .q_counts = tables.counts,
          .k_counts = tables.counts,
          .q_offsets = tables.of(CallTables::kQ),
          .k_offsets = tables.of(CallTables::kK),
          .v_offsets = tables.of(CallTables::kV),
          .out_offsets = tables.of(CallTables::kOut),
          .lse_offsets = tables.of(CallTables::kLse),
          .dq_offsets = tables.of(CallTables::kDq),
          .dk_offsets = tables.of(CallTables::kDk),
          .dv_offsets = tables.of(CallTables::kDv)};
}

CudnnAttentionArrays BackwardArrays(const AttentionBackwardArgs<bf16>& args, const Call& call,
                                    const CallTables& tables) {
  CudnnAttentionArrays arrays = Arrays(args, call, tables);
  const int64_t k_at = call.first_kv_head * args.head_dim;
  const int64_t q_at = k_at * (args.num_heads / args.num_kv_heads);
  arrays.dout = args.dout + q_at;
  arrays.dq = args.dq + q_at;
  arrays.dk = args.dk + k_at;
  arrays.dv = args.dv + k_at;
  return arrays;
}

// Whether cuDNN has a plan for this shape that works in `bytes`: `usable` stays true then. Errors
// other than a refusal are not hidden by falling back.
absl::Status Prepare(const Context& context, const CudnnAttentionShape& shape, int64_t bytes,
                     bool& usable) {
  const absl::StatusOr<int64_t> wanted = context.cudnn->Prepare(shape);
  if (!wanted.ok() && !absl::IsUnimplemented(wanted.status())) return wanted.status();
  usable = usable && wanted.ok() && *wanted <= bytes;
  return absl::OkStatus();
}

absl::Status RunCall(const Context& context, const CudnnAttentionShape& shape, const Call& call,
                     const CudnnAttentionArrays& arrays, const Scratch& scratch) {
  const CallStrides strides{shape.q_stride,   shape.k_stride,  shape.v_stride,  shape.out_stride,
                            shape.lse_stride, shape.dq_stride, shape.dk_stride, shape.dv_stride};
  PENSTOCK_RETURN_IF_ERROR(FillTables(call, strides, scratch.tables, context.stream));
  return context.cudnn->Run(shape, arrays, scratch.rest);
}

// The rows of one document, as a micro-batch of one.
AttentionBackwardArgs<bf16> Alone(const AttentionBackwardArgs<bf16>& args,
                                  const penstock::attention::Document& document) {
  const int64_t row = document.begin, q_size = args.num_heads * args.head_dim;
  AttentionBackwardArgs<bf16> alone = args;
  alone.q += row * args.q_stride;
  alone.k += row * args.k_stride;
  alone.v += row * args.v_stride;
  alone.out += row * q_size;
  alone.dout += row * q_size;
  alone.lse += row * args.num_heads;
  alone.dq += row * args.dq_stride;
  alone.dk += row * args.dk_stride;
  alone.dv += row * args.dv_stride;
  alone.num_documents = 1;
  alone.rows = document.rows;
  return alone;
}

// A document too long for one call. A cut of block 0 means our own kernels.
BlocksArgs Blocks(const AttentionBackwardArgs<bf16>& args,
                  const penstock::attention::Document& document, const Scratch& scratch) {
  const int64_t bytes = scratch.rest_bytes - penstock::attention::kRoundingBytes;
  BlocksArgs blocks{.args = Alone(args, document),
                    .cut = {0, 0},
                    .tables = scratch.tables,
                    .scratch = scratch.rest,
                    .plan_slack_bytes = penstock::attention::kRoundingBytes};
  if (args.window == 0) {
    blocks.cut = penstock::attention::CutIntoBlocks(ShapeOf(args), document.rows, bytes);
  }
  return blocks;
}

absl::Status RunLong(const Context& context, BlocksArgs blocks, const Scratch& scratch) {
  if (blocks.cut.block > 0) return RunBlocks(context, blocks);
  PENSTOCK_RETURN_IF_ERROR(
      FillStarts(static_cast<int32_t>(blocks.args.rows), scratch.tables.counts, context.stream));
  blocks.args.document_starts = scratch.tables.counts;
  blocks.args.scratch = scratch.rest;
  blocks.args.scratch_bytes = scratch.rest_bytes;
  return BackwardByKernels(context, blocks.args);
}

}  // namespace

absl::StatusOr<bool> ForwardByCudnn(const Context& context,
                                    const AttentionForwardArgs<bf16>& args) {
  if (!MayUse(context, args)) return false;
  const Scratch scratch = Divide(args);
  const auto for_each = [&args](penstock::attention::VisitCall visit) {
    return penstock::attention::ForEachForwardCall(ShapeOf(args), args.host_document_starts,
                                                   args.num_documents, visit);
  };
  bool usable = true;
  PENSTOCK_RETURN_IF_ERROR(for_each([&](const Call& call) {
    return Prepare(context, PlanShape(args, call), scratch.rest_bytes, usable);
  }));
  if (!usable) return false;
  PENSTOCK_RETURN_IF_ERROR(for_each([&](const Call& call) {
    return RunCall(context, PlanShape(args, call), call, Arrays(args, call, scratch.tables),
                   scratch);
  }));
  return true;
}

absl::StatusOr<bool> BackwardByCudnn(const Context& context,
                                     const AttentionBackwardArgs<bf16>& args) {
  if (!MayUseBackward(context, args)) return false;
  const Scratch scratch = Divide(args);
  const auto for_each = [&](penstock::attention::VisitCall visit,
                            penstock::attention::VisitDocument visit_long) {
    return penstock::attention::ForEachBackwardCall(
        ShapeOf(args), args.host_document_starts, args.num_documents,
        scratch.rest_bytes - penstock::attention::kRoundingBytes, visit, visit_long);
  };
  bool usable = true;
  PENSTOCK_RETURN_IF_ERROR(for_each(
      [&](const Call& call) {
        return Prepare(context, BackwardPlanShape(args, call), scratch.rest_bytes, usable);
      },
      [&](const penstock::attention::Document& document) {
        const BlocksArgs blocks = Blocks(args, document, scratch);
        return blocks.cut.block == 0 ? absl::OkStatus() : PrepareBlocks(context, blocks, usable);
      }));
  if (!usable) return false;
  PENSTOCK_RETURN_IF_ERROR(for_each(
      [&](const Call& call) {
        return RunCall(context, BackwardPlanShape(args, call), call,
                       BackwardArrays(args, call, scratch.tables), scratch);
      },
      [&](const penstock::attention::Document& document) {
        return RunLong(context, Blocks(args, document, scratch), scratch);
      }));
  return true;
}

}  // namespace penstock::cuda::attention
