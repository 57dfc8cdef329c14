// The CPU backend: the device arena is host memory, and weights and activations are fp32.
//
// Every mutable member below belongs to one lane while a program runs; what crosses lanes
// (partial norms, loss, decision) is ordered by the program, as ClipScale's hazards.

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/base/units.h"
#include "engine/exec/executor.h"
#include "engine/exec/host_ops.h"
#include "engine/exec/lane_runner.h"
#include "engine/exec/step_updates.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/rope.h"
#include "engine/kernels/round_gradients.h"
#include "engine/kernels/sum_of_squares.h"
#include "engine/memory/host_memory.h"
#include "engine/memory/planes.h"
#include "engine/model/rope.h"
#include "engine/nn/decoder.h"
#include "engine/nn/kernel_scratch.h"
#include "engine/plan/device_state.h"

namespace penstock {
namespace {

class CpuExecutor final : public Executor {
 public:
  CpuExecutor(const ModelSpec& spec, HostStore& store, const ExecutorOptions& options,
              HostMemory arena, HostMemory host_arena, HostMemory rope_table)
      : store_(store),
        arena_(std::move(arena)),
        host_arena_(std::move(host_arena)),
        rope_table_(std::move(rope_table)),
        compute_pool_(options.threads),
        host_pool_(options.threads),
        decoder_(spec, store.layout(),
                 {.tokens_per_micro_batch = options.tokens_per_micro_batch,
                  .head_chunk_rows = options.head_chunk_rows,
                  .mlp_chunk_rows = options.mlp_chunk_rows,
                  .kernel_scratch_bytes = CpuKernelScratchBytes(options.threads)},
                 reinterpret_cast<const float*>(rope_table_.data()), options.max_positions),
        norm_partials_(spec.num_blocks()) {}

  absl::Status Prepare(const StepProgram& program) override {
    PENSTOCK_RETURN_IF_ERROR(CheckProgram(program, arena_.bytes(), host_arena_.bytes(), store_));
    for (const Op& op : program.ops) {
      const auto* update = std::get_if<UpdateDevice>(&op.body);
      if (update == nullptr) continue;
      hi_.resize(std::max<size_t>(hi_.size(), Layout(update->block).size));
      lo_.resize(hi_.size());
    }
    lanes_.Reserve(program.ops.size());
    return absl::OkStatus();
  }

  absl::Status Run(const StepProgram& program, const StepInput& input,
                   StepResult& result) override {
    program_ = &program;
    input_ = &input;
    loss_sum_ = 0;
    labelled_tokens_ = 0;
    PENSTOCK_RETURN_IF_ERROR(updates_.Begin(program, input.gate));
    PENSTOCK_RETURN_IF_ERROR(lanes_.Run(program, [this](const Op& op) {
      return std::visit([this](const auto& body) { return RunOp(body); }, op.body);
    }));
    PENSTOCK_RETURN_IF_ERROR(CheckLabelCount(labelled_tokens_, input.labelled_tokens));
    updates_.End(store_);
    result.loss_sum = loss_sum_;
    result.labelled_tokens = labelled_tokens_;
    result.decision = updates_.decided();
    result.busy_seconds = {};
    for (size_t i = 0; i < program.ops.size(); ++i) {
      const OpTime& time = lanes_.times()[i];
      result.busy_seconds[static_cast<int>(program.ops[i].lane)] +=
          static_cast<double>(time.end_ns - time.start_ns) * 1e-9;
    }
    return absl::OkStatus();
  }

  std::span<const OpTime> timeline() const override { return lanes_.times(); }

 private:
  template <typename T = float>
  T* Ptr(BufferId id) const {
    const Buffer& buffer = program_->buffer(id);
    const HostMemory& arena = buffer.arena == Arena::kHost ? host_arena_ : arena_;
    return reinterpret_cast<T*>(arena.data() + buffer.offset);
  }
  std::byte* Bytes(BufferId id) const { return Ptr<std::byte>(id); }
  bool rounded() const { return program_->gradient_type == GradientType::kBfloat16; }
  const MicroBatchView& Batch(int32_t index) const { return input_->micro_batches[index]; }
  const BlockLayout& Layout(BlockId block) const { return store_.layout().blocks[Index(block)]; }

  absl::Status RunOp(const FetchWeights& op) {
    const BlockStore& block = store_.block(op.block);
    return JoinPlanes(copy_in_, block.hi.data(), block.lo.data(),
                      static_cast<int64_t>(block.hi.size()), Ptr(op.weights));
  }

  absl::Status RunOp(const EmbedForward& op) {
    return decoder_.Embed(compute_, Batch(op.micro_batch), Ptr(op.weights), Ptr(op.out));
  }

  absl::Status RunOp(const ForwardBlock& op) {
    return decoder_.Forward(compute_, Index(op.block) - 1, Batch(op.micro_batch),
                            {.weights = Ptr(op.weights),
                             .in = Ptr(op.in),
                             .out = Ptr(op.out),
                             .attention = Bytes(op.attention),
                             .mlp = Bytes(op.mlp),
                             .saved = op.saved,
                             .scratch = Bytes(op.scratch)});
  }

  absl::Status RunOp(const HeadLoss& op) {
    const bool tied = op.head_weights != op.weights;
    const int64_t matrix = tied ? 0 : Layout(op.block).OffsetOf(Role::kHeadWeight);
    const bool gradients = op.d_in != kNoBuffer;
    const double count = static_cast<double>(std::max<int64_t>(1, input_->labelled_tokens));
    return decoder_.HeadLoss(
        compute_, Batch(op.micro_batch),
        {.weights = Ptr(op.weights),
         .head_weights = Ptr(op.head_weights) + matrix,
         .in = Ptr(op.in),
         .d_in = gradients ? Ptr(op.d_in) : nullptr,
         .norm_gradient = gradients ? Ptr(op.gradients) : nullptr,
         .head_gradient = gradients ? Ptr(op.head_gradients) + matrix : nullptr,
         .mode = ToWriteMode(op.accumulate),
         .gradient_scale = static_cast<float>(1.0 / count),
         .loss_sum = &loss_sum_,
         .labelled_tokens = &labelled_tokens_,
         .scratch = Bytes(op.scratch)});
  }

  absl::Status RunOp(const BackwardBlock& op) {
    return decoder_.Backward(compute_, Index(op.block) - 1, Batch(op.micro_batch),
                             {.weights = Ptr(op.weights),
                              .in = Ptr(op.in),
                              .attention = Bytes(op.attention),
                              .mlp = Bytes(op.mlp),
                              .saved = op.saved,
                              .d = Ptr(op.d),
                              .gradients = Ptr(op.gradients),
                              .mode = ToWriteMode(op.accumulate),
                              .scratch = Bytes(op.scratch)});
  }

  absl::Status RunOp(const EmbedBackward& op) {
    return decoder_.EmbedBackward(compute_, Batch(op.micro_batch), Ptr(op.d), Ptr(op.gradients),
                                  ToWriteMode(op.accumulate), Bytes(op.scratch));
  }

  absl::Status RunOp(const StoreSaved& op) {
    return CopyBytes(copy_out_, Bytes(op.host), Bytes(op.device), program_->buffer(op.host).bytes);
  }

  absl::Status RunOp(const FetchSaved& op) {
    return CopyBytes(copy_in_, Bytes(op.device), Bytes(op.host), program_->buffer(op.host).bytes);
  }

  absl::Status RunOp(const RoundGradients& op) {
    return RoundToBf16(compute_, Ptr(op.sums), Ptr<bf16>(op.out), Layout(op.block).size);
  }

  // Per parameter: the gaps between them are nobody's gradient.
  absl::Status RunOp(const ReduceNorm& op) {
    double sum = 0;
    for (const Parameter& parameter : Layout(op.block).parameters) {
      const int64_t at = parameter.offset;
      sum += rounded() ? SumOfSquares(compute_, Ptr<bf16>(op.gradients) + at, parameter.size)
                       : SumOfSquares(compute_, Ptr(op.gradients) + at, parameter.size);
    }
    norm_partials_[Index(op.block)] = sum;
    return absl::OkStatus();
  }

  absl::Status RunOp(const StoreGradients& op) {
    std::byte* plane =
        op.host == kNoBuffer ? store_.block(op.block).gradient_bytes() : Bytes(op.host);
    const int64_t element = GradientBytesPerElement(program_->gradient_type);
    for (const Parameter& parameter : Layout(op.block).parameters) {
      PENSTOCK_RETURN_IF_ERROR(CopyBytes(copy_out_, plane + parameter.offset * element,
                                         Bytes(op.gradients) + parameter.offset * element,
                                         parameter.size * element));
    }
    return absl::OkStatus();
  }

  absl::Status RunOp(const StoreSums& op) {
    float* sums = store_.block(op.block).sums.data();
    for (const Parameter& parameter : Layout(op.block).parameters) {
      PENSTOCK_RETURN_IF_ERROR(CopyBytes(copy_out_, sums + parameter.offset,
                                         Ptr(op.sums) + parameter.offset, parameter.size * 4));
    }
    return absl::OkStatus();
  }

  absl::Status RunOp(const FetchSums& op) {
    const float* sums = store_.block(op.block).sums.data();
    for (const Parameter& parameter : Layout(op.block).parameters) {
      PENSTOCK_RETURN_IF_ERROR(CopyBytes(copy_in_, Ptr(op.sums) + parameter.offset,
                                         sums + parameter.offset, parameter.size * 4));
    }
    return absl::OkStatus();
  }

  absl::Status RunOp(const ClipScale&) {
    // Before anything is updated: a step whose labels were miscounted has a wrong scale.
    PENSTOCK_RETURN_IF_ERROR(CheckLabelCount(labelled_tokens_, input_->labelled_tokens));
    double sum = 0;
    for (double partial : norm_partials_) sum += partial;
    updates_.Decide(DecideStep(loss_sum_, labelled_tokens_, sum, input_->optimizer.max_grad_norm),
                    input_->optimizer);
    return absl::OkStatus();
  }

  absl::Status RunOp(const DecideUnclipped&) {
    PENSTOCK_RETURN_IF_ERROR(CheckLabelCount(labelled_tokens_, input_->labelled_tokens));
    PENSTOCK_ASSIGN_OR_RETURN(const StepDecision decision,
                              DecideBeforeNorm(loss_sum_, labelled_tokens_, input_->optimizer));
    updates_.Decide(decision, input_->optimizer);
    return absl::OkStatus();
  }

  absl::Status RunOp(const UpdateHost& op) {
    if (op.gradients == kNoBuffer) return UpdateBlock(host_, store_, op.block, op.part, updates_);
    return UpdateBlockFrom(host_, store_, op.block, Bytes(op.gradients), program_->gradient_type,
                           norm_partials_[Index(op.block)], updates_);
  }

  // What CUDA keeps as planes is whole here: the device's weights are fp32 on this backend, and
  // the buffer of the correction plane stays empty.
  absl::Status RunOp(const UpdateDevice& op) {
    const BlockLayout& layout = Layout(op.block);
    SplitPlanes(Ptr(op.weights), layout.size, hi_.data(), lo_.data());
    const DeviceMoments moments = DeviceMomentsAt(Bytes(op.moments), layout.size);
    PENSTOCK_RETURN_IF_ERROR(
        UpdateParameters(compute_, layout,
                         {.hi = hi_.data(),
                          .lo = lo_.data(),
                          .m = moments.m,
                          .v = moments.v,
                          .gradient = rounded() ? nullptr : Ptr(op.gradients),
                          .gradient_bf16 = rounded() ? Ptr<bf16>(op.gradients) : nullptr,
                          .part = op.part},
                         store_.updates_applied, updates_));
    return JoinPlanes(compute_, hi_.data(), lo_.data(), layout.size, Ptr(op.weights));
  }

  absl::Status RunOp(const FetchMaster& op) {
    const BlockStore& block = store_.block(op.block);
    return JoinPlanes(copy_in_, block.hi.data(), block.lo.data(), Layout(op.block).size,
                      Ptr(op.weights));
  }

  absl::Status RunOp(const StoreMaster& op) {
    updates_.AskToChange(op.block);
    BlockStore& block = store_.block(op.block);
    SplitPlanes(Ptr(op.weights), Layout(op.block).size, block.hi.data(), block.lo.data());
    return absl::OkStatus();
  }

  absl::Status RunOp(const FetchMoments& op) {
    const BlockStore& block = store_.block(op.block);
    const int64_t size = Layout(op.block).size;
    const DeviceMoments moments = DeviceMomentsAt(Bytes(op.moments), size);
    PENSTOCK_RETURN_IF_ERROR(CopyBytes(copy_in_, moments.m, block.m.data(), size * 4));
    return CopyBytes(copy_in_, moments.v, block.v.data(), size * 4);
  }

  absl::Status RunOp(const StoreMoments& op) {
    updates_.AskToChange(op.block);
    BlockStore& block = store_.block(op.block);
    const int64_t size = Layout(op.block).size;
    const DeviceMoments moments = DeviceMomentsAt(Bytes(op.moments), size);
    PENSTOCK_RETURN_IF_ERROR(CopyBytes(copy_out_, block.m.data(), moments.m, size * 4));
    return CopyBytes(copy_out_, block.v.data(), moments.v, size * 4);
  }

  HostStore& store_;
  HostMemory arena_, host_arena_;
  HostMemory rope_table_;
  // One pool a lane: a pool has one caller at a time.
  ThreadPool compute_pool_, host_pool_, copy_in_pool_{1}, copy_out_pool_{1};
  cpu::Context compute_{&compute_pool_}, host_{&host_pool_};
  cpu::Context copy_in_{&copy_in_pool_}, copy_out_{&copy_out_pool_};
  Decoder<float, cpu::Context> decoder_;

  std::vector<uint16_t> hi_;  // planes of the block that UpdateDevice works on
  std::vector<int16_t> lo_;

  // Of the current run.
  const StepProgram* program_ = nullptr;
  const StepInput* input_ = nullptr;
  double loss_sum_ = 0;                // compute lane, then host lane
  int64_t labelled_tokens_ = 0;        // likewise
  std::vector<double> norm_partials_;  // by block; likewise
  StepUpdates updates_;                // host lane; update ops read it

  LaneRunner lanes_;  // last: its threads use all of the above
};

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> CreateCpuExecutor(const ModelSpec& spec, HostStore& store,
                                                            const ExecutorOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(HostMemory arena, HostMemory::Allocate(options.arena_bytes));
  PENSTOCK_ASSIGN_OR_RETURN(HostMemory host_arena, HostMemory::Allocate(options.host_arena_bytes));
  if (options.arena_fill) {
    std::memset(arena.data(), *options.arena_fill, arena.bytes());
    std::memset(host_arena.data(), *options.arena_fill, host_arena.bytes());
  }
  PENSTOCK_ASSIGN_OR_RETURN(HostMemory rope_table,
                            HostMemory::Allocate(RopeTableBytes(spec, options.max_positions)));
  FillRopeTable(RopeInverseFrequencies(spec.rope, spec.head_dim), options.max_positions,
                reinterpret_cast<float*>(rope_table.data()));
  return std::make_unique<CpuExecutor>(spec, store, options, std::move(arena),
                                       std::move(host_arena), std::move(rope_table));
}

int64_t CpuExecutorOverheadBytes(const ModelSpec& spec, const ExecutorOptions& options) {
  // What a thread of ours or of the BLAS library touches of its stack and buffers.
  constexpr int64_t kBytesPerThread = 32 << 20;
  return RopeTableBytes(spec, options.max_positions) + 2 * options.threads * kBytesPerThread;
}

}  // namespace penstock
