// Attention's backward op for one long document, by blocks of queries and keys, each pair of blocks
// one cuDNN call (attention_calls.h says how it is cut). Internal to attention_cudnn_cuda.cc.
//   dq[i] = sum over j <= i of dq(i, j)      dk[j], dv[j] = sums over i >= j, in f32, ascending
// where (i, j) is the op with block i's queries and block j's keys alone; `out` and `lse` are those
// of the whole document, which makes its probabilities the right ones.
#pragma once

#include "absl/status/status.h"
#include "engine/cuda/context.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/attention_calls.h"
#include "engine/kernels/attention_tables_cuda.h"

namespace penstock::cuda::attention {

// A document alone in its arrays, `args.rows` long, and the scratch for its calls.
struct BlocksArgs {
  AttentionBackwardArgs<bf16> args;
  penstock::attention::BlockCut cut;
  CallTables tables;
  std::byte* scratch;  // PlaceBlocks().bytes and plan_slack_bytes
  int64_t plan_slack_bytes;
};

// Builds the two plans. Sets `usable` to false, and leaves it else, if cuDNN refuses one of them or
// wants more workspace than was placed for it.
absl::Status PrepareBlocks(const Context& context, const BlocksArgs& blocks, bool& usable);

// Queues all calls. REQUIRES: PrepareBlocks() found them usable.
absl::Status RunBlocks(const Context& context, const BlocksArgs& blocks);

}  // namespace penstock::cuda::attention
