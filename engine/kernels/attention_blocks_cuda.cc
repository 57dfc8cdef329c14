#include "engine/kernels/attention_blocks_cuda.h"

#include <algorithm>

#include "engine/base/status.h"
#include "engine/cuda/cudnn_attention.h"
#include "engine/kernels/attention_sums_cuda.h"

namespace penstock::cuda::attention {
namespace {

using penstock::attention::BlockScratch;

// The calls of one group of heads, the same for every pair of blocks.
class HeadGroup {
 public:
  HeadGroup(const BlocksArgs& blocks, int64_t first_kv_head)
      : args_(blocks.args),
        blocks_(blocks),
        place_(penstock::attention::PlaceBlocks(
            {args_.rows, args_.num_heads, args_.num_kv_heads, args_.head_dim}, args_.rows,
            blocks.cut)),
        group_(args_.num_heads / args_.num_kv_heads),
        kv_width_(blocks.cut.num_kv_heads * args_.head_dim),
        q_width_(kv_width_ * group_),
        kv_at_(first_kv_head * args_.head_dim),
        q_at_(kv_at_ * group_),
        lse_at_(first_kv_head * group_) {}

  // Diagonal blocks are causal; below the diagonal every query sees every key.
  CudnnAttentionShape Shape(bool diagonal) const {
    return {.backward = true,
            .causal = diagonal,
            .batch = 1,
            .longest = blocks_.cut.block,
            .num_heads = blocks_.cut.num_kv_heads * group_,
            .num_kv_heads = blocks_.cut.num_kv_heads,
            .head_dim = args_.head_dim,
            .q_stride = args_.q_stride,
            .k_stride = args_.k_stride,
            .v_stride = args_.v_stride,
            .out_stride = OutStride(),
            .lse_stride = args_.num_heads,
            .dq_stride = q_width_,
            .dk_stride = kv_width_,
            .dv_stride = kv_width_,
            .window = 0,
            .scale = args_.scale};
  }

  int64_t PlanBytes() const { return place_.bytes - place_.plan + blocks_.plan_slack_bytes; }

  absl::Status Run(const Context& context) const {
    for (int64_t query = 0; query < args_.rows; query += blocks_.cut.block) {
      for (int64_t key = 0; key <= query; key += blocks_.cut.block) {
        PENSTOCK_RETURN_IF_ERROR(RunPair(context, query, key));
      }
      PENSTOCK_RETURN_IF_ERROR(RoundRows({.sum = At<float>(place_.dq_sum),
                                          .to = args_.dq + query * args_.dq_stride + q_at_,
                                          .to_stride = args_.dq_stride,
                                          .rows = Rows(query),
                                          .width = q_width_},
                                         context.stream));
    }
    PENSTOCK_RETURN_IF_ERROR(RoundKeys(context, place_.dk_sum, args_.dk, args_.dk_stride));
    return RoundKeys(context, place_.dv_sum, args_.dv, args_.dv_stride);
  }

 private:
  template <typename T>
  T* At(int64_t offset) const {
    return reinterpret_cast<T*>(blocks_.scratch + offset);
  }
  int64_t OutStride() const { return args_.num_heads * args_.head_dim; }
  int64_t Rows(int64_t begin) const { return std::min(blocks_.cut.block, args_.rows - begin); }

  absl::Status RunPair(const Context& context, int64_t query, int64_t key) const {
    const CudnnAttentionShape shape = Shape(query == key);
    const CallStrides strides{shape.q_stride,   shape.k_stride,  shape.v_stride,  shape.out_stride,
                              shape.lse_stride, shape.dq_stride, shape.dk_stride, shape.dv_stride};
    PENSTOCK_RETURN_IF_ERROR(FillBlockTables(static_cast<int32_t>(Rows(query)),
                                             static_cast<int32_t>(Rows(key)), strides,
                                             blocks_.tables, context.stream));
    PENSTOCK_RETURN_IF_ERROR(
        context.cudnn->Run(shape, Arrays(query, key), At<std::byte>(place_.plan)));
    // The first pair of a block of queries is that with the first keys; that of a block of keys is
    // the diagonal one.
    const int64_t key_sum_at = key * kv_width_, key_count = Rows(key) * kv_width_;
    PENSTOCK_RETURN_IF_ERROR(AddPart(At<bf16>(place_.dq_part), Rows(query) * q_width_, key == 0,
                                     At<float>(place_.dq_sum), context.stream));
    PENSTOCK_RETURN_IF_ERROR(AddPart(At<bf16>(place_.dk_part), key_count, query == key,
                                     At<float>(place_.dk_sum) + key_sum_at, context.stream));
    return AddPart(At<bf16>(place_.dv_part), key_count, query == key,
                   At<float>(place_.dv_sum) + key_sum_at, context.stream);
  }

  CudnnAttentionArrays Arrays(int64_t query, int64_t key) const {
    const CallTables& tables = blocks_.tables;
    const int64_t out_at = query * OutStride() + q_at_;
    return {.q = args_.q + query * args_.q_stride + q_at_,
            .k = args_.k + key * args_.k_stride + kv_at_,
            .v = args_.v + key * args_.v_stride + kv_at_,
            .out = args_.out + out_at,
            .lse = args_.lse + query * args_.num_heads + lse_at_,
            .dout = args_.dout + out_at,
            .dq = At<bf16>(place_.dq_part),
            .dk = At<bf16>(place_.dk_part),
            .dv = At<bf16>(place_.dv_part),
            .q_counts = tables.counts,
            .k_counts = tables.key_counts,
            .q_offsets = tables.of(CallTables::kQ),
            .k_offsets = tables.of(CallTables::kK),
            .v_offsets = tables.of(CallTables::kV),
            .out_offsets = tables.of(CallTables::kOut),
            .lse_offsets = tables.of(CallTables::kLse),
            .dq_offsets = tables.of(CallTables::kDq),
            .dk_offsets = tables.of(CallTables::kDk),
            .dv_offsets = tables.of(CallTables::kDv)};
  }

  absl::Status RoundKeys(const Context& context, int64_t sum, bf16* to, int64_t stride) const {
    return RoundRows({.sum = At<float>(sum),
                      .to = to + kv_at_,
                      .to_stride = stride,
                      .rows = args_.rows,
                      .width = kv_width_},
                     context.stream);
  }

  const AttentionBackwardArgs<bf16>& args_;
  const BlocksArgs& blocks_;
  const BlockScratch place_;
  const int64_t group_, kv_width_, q_width_;
  const int64_t kv_at_, q_at_, lse_at_;  // of the group's first head, in a row of each array
};

}  // namespace

absl::Status PrepareBlocks(const Context& context, const BlocksArgs& blocks, bool& usable) {
  const HeadGroup group(blocks, 0);
  for (const bool diagonal : {true, false}) {
    const absl::StatusOr<int64_t> wanted = context.cudnn->Prepare(group.Shape(diagonal));
    if (!wanted.ok() && !absl::IsUnimplemented(wanted.status())) return wanted.status();
    usable = usable && wanted.ok() && *wanted <= group.PlanBytes();
  }
  return absl::OkStatus();
}

absl::Status RunBlocks(const Context& context, const BlocksArgs& blocks) {
  for (int64_t head = 0; head < blocks.args.num_kv_heads; head += blocks.cut.num_kv_heads) {
    PENSTOCK_RETURN_IF_ERROR(HeadGroup(blocks, head).Run(context));
  }
  return absl::OkStatus();
}

}  // namespace penstock::cuda::attention
