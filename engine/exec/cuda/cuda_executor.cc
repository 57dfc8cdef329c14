// The CUDA backend: bf16 weights and activations in one device arena, fp32 gradients.
//
// Lanes: copy-in, compute and copy-out are streams; the host lane is a thread. LaneRunner has a
// thread for each, and for the first three "done" means queued: the thread of a later op lets its
// stream wait for the events of the ops it names. The host lane waits for events itself, and an
// op that names a host op is queued after that op has returned.
//
// Weights leave the host store as they lie there, the hi plane being the bf16 nearest to each
// weight (memory/planes.h). Gradients leave in the program's type into its gradient planes.
//
// NVTX ranges, named by OpText, cover the time in which an op is queued; a profiler ties the
// device's work to them.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/base/units.h"
#include "engine/cuda/context.h"
#include "engine/cuda/device_memory.h"
#include "engine/cuda/handle.h"
#include "engine/cuda/pinned_memory.h"
#include "engine/cuda/profiler_range.h"
#include "engine/cuda/status.h"
#include "engine/exec/cuda/program_check.h"
#include "engine/exec/cuda/step_inputs.h"
#include "engine/exec/cuda/step_sums.h"
#include "engine/exec/executor.h"
#include "engine/exec/gpu_checks.h"
#include "engine/exec/host_ops.h"
#include "engine/exec/lane_runner.h"
#include "engine/exec/step_updates.h"
#include "engine/kernels/rope.h"
#include "engine/kernels/round_gradients.h"
#include "engine/kernels/sum_of_squares.h"
#include "engine/memory/host_memory.h"
#include "engine/model/rope.h"
#include "engine/nn/decoder.h"
#include "engine/nn/kernel_scratch.h"
#include "engine/plan/device_state.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

// What CreateCudaExecutor makes and the executor owns.
struct Parts {
  HostMemory host_arena;
  cuda::PinnedRanges store, pinned_host_arena;
  cuda::DeviceMemory arena, rope_table;
  std::unique_ptr<cuda::OwnedContext> context;
  cuda::Stream copy_in, copy_out;
  cuda::Event origin;
  StepSums sums;
};

class CudaExecutor final : public Executor {
 public:
  CudaExecutor(const ModelSpec& spec, HostStore& store, const ExecutorOptions& options, Parts parts)
      : store_(store),
        parts_(std::move(parts)),
        compute_(parts_.context->get()),
        host_pool_(options.threads, PlacesForPool(options.threads)),
        inputs_({.tokens_per_micro_batch = options.tokens_per_micro_batch,
                 .max_positions = options.max_positions,
                 .vocab_size = spec.vocab_size}),
        decoder_(
            spec, store.layout(),
            {.tokens_per_micro_batch = options.tokens_per_micro_batch,
             .head_chunk_rows = options.head_chunk_rows,
             .mlp_chunk_rows = options.mlp_chunk_rows,
             .kernel_scratch_bytes = CudaKernelScratchBytes(spec, options.tokens_per_micro_batch)},
            reinterpret_cast<const float*>(parts_.rope_table.data()), options.max_positions) {
    for (const BlockLayout& block : store.layout().blocks) {
      ranges_.push_back(ParameterRanges(block));
    }
  }

  absl::Status Prepare(const StepProgram& program) override {
    PENSTOCK_RETURN_IF_ERROR(
        CheckProgram(program, parts_.arena.bytes(), parts_.host_arena.bytes(), store_));
    PENSTOCK_RETURN_IF_ERROR(CheckLanes(program));
    lanes_.Reserve(program.ops.size());
    std::vector<std::string>& texts = texts_by_program_[&program];
    texts.clear();
    for (size_t i = 0; i < program.ops.size(); ++i) {
      texts.push_back(OpText(program, OpId{static_cast<int32_t>(i)}));
    }
    times_.resize(std::max(times_.size(), program.ops.size()));
    while (events_.size() < program.ops.size()) {
      PENSTOCK_ASSIGN_OR_RETURN(cuda::Event start, cuda::CreateEvent());
      PENSTOCK_ASSIGN_OR_RETURN(cuda::Event end, cuda::CreateEvent());
      events_.push_back({std::move(start), std::move(end)});
    }
    return inputs_.Reserve(program.micro_batches);
  }

  absl::Status Run(const StepProgram& program, const StepInput& input,
                   StepResult& result) override {
    program_ = &program;
    const auto texts = texts_by_program_.find(&program);
    if (texts == texts_by_program_.end()) {
      return Error(absl::StatusCode::kInternal, reason::kInternal,
                   "this program was not prepared, or moved since");
    }
    op_texts_ = &texts->second;
    input_ = &input;
    // An input that is refused leaves a pending update where it is.
    PENSTOCK_RETURN_IF_ERROR(Begin());
    PENSTOCK_RETURN_IF_ERROR(updates_.Begin(program, input.gate));
    absl::Status status = lanes_.Run(program, [this](const Op& op) { return RunOrQueue(op); });
    // What has been queued runs to its end, also after a failure: buffers are reused.
    absl::Status drained = Drain();
    PENSTOCK_RETURN_IF_ERROR(status);
    PENSTOCK_RETURN_IF_ERROR(drained);
    PENSTOCK_RETURN_IF_ERROR(
        CheckLabelCount(*parts_.sums.labelled_tokens(), input.labelled_tokens));
    updates_.End(store_);
    return Report(result);
  }

  std::string notice() const override {
    const int64_t unlocked =
        parts_.store.unlocked_bytes() + parts_.pinned_host_arena.unlocked_bytes();
    if (unlocked == 0) return {};
    const absl::Status& refusal =
        parts_.store.refusal().ok() ? parts_.pinned_host_arena.refusal() : parts_.store.refusal();
    return absl::StrCat(FormatBytes(unlocked),
                        " of host memory are not locked for the GPU: copies of it go through ",
                        "the driver's buffers and take about ten times as long",
                        refusal.ok() ? std::string(" (limits.page_lock: off)")
                                     : absl::StrCat("; ", std::string(refusal.message())));
  }

  std::span<const OpTime> timeline() const override {
    return {times_.data(), program_ == nullptr ? 0 : program_->ops.size()};
  }

 private:
  struct OpEvents {
    cuda::Event start, end;
  };

  cudaStream_t StreamOf(Lane lane) const {
    switch (lane) {
      case Lane::kCopyIn:
        return parts_.copy_in.get();
      case Lane::kCopyOut:
        return parts_.copy_out.get();
      case Lane::kCompute:
        return compute_.stream;
      case Lane::kHost:
        break;
    }
    PENSTOCK_CHECK(false, "the host lane has no stream");
  }

  size_t IndexOf(const Op& op) const { return static_cast<size_t>(&op - program_->ops.data()); }

  // Uploads the input; the timeline starts when it is there.
  absl::Status Begin() {
    PENSTOCK_RETURN_IF_ERROR(inputs_.Upload(compute_.stream, input_->micro_batches));
    parts_.sums.Clear();
    PENSTOCK_RETURN_IF_ERROR(cuda::CudaStatus(cudaEventRecord(parts_.origin.get(), compute_.stream),
                                              "start of the step"));
    PENSTOCK_RETURN_IF_ERROR(
        cuda::CudaStatus(cudaEventSynchronize(parts_.origin.get()), "start of the step"));
    start_ = Clock::now();
    return absl::OkStatus();
  }

  absl::Status RunOrQueue(const Op& op) {
    const auto run = [this](const Op& it) {
      return std::visit([&](const auto& body) { return RunOp(body, it.lane); }, it.body);
    };
    if (op.lane == Lane::kHost) {
      PENSTOCK_RETURN_IF_ERROR(WaitOnHost(op));
      OpTime& time = times_[IndexOf(op)];
      time.start_ns = NowNs();
      absl::Status status = run(op);
      time.end_ns = NowNs();
      return status;
    }
    const cudaStream_t stream = StreamOf(op.lane);
    for (OpId after : op.after) {
      const Lane lane = program_->ops[Index(after)].lane;
      if (lane == Lane::kHost || lane == op.lane) continue;
      PENSTOCK_RETURN_IF_ERROR(cuda::CudaStatus(
          cudaStreamWaitEvent(stream, events_[Index(after)].end.get(), 0), "order of lanes"));
    }
    const OpEvents& events = events_[IndexOf(op)];
    const cuda::ProfilerRange range((*op_texts_)[IndexOf(op)]);
    PENSTOCK_RETURN_IF_ERROR(
        cuda::CudaStatus(cudaEventRecord(events.start.get(), stream), "start of an op"));
    PENSTOCK_RETURN_IF_ERROR(run(op));
    return cuda::CudaStatus(cudaEventRecord(events.end.get(), stream), "end of an op");
  }

  absl::Status WaitOnHost(const Op& op) {
    for (OpId after : op.after) {
      if (program_->ops[Index(after)].lane == Lane::kHost) continue;
      PENSTOCK_RETURN_IF_ERROR(
          cuda::CudaStatus(cudaEventSynchronize(events_[Index(after)].end.get()),
                           "the device's work before this op"));
    }
    return absl::OkStatus();
  }

  absl::Status Drain() {
    absl::Status first;
    for (Lane lane : {Lane::kCopyIn, Lane::kCompute, Lane::kCopyOut}) {
      first.Update(cuda::CudaStatus(cudaStreamSynchronize(StreamOf(lane)),
                                    "the device's work of this step"));
    }
    return first;
  }

  int64_t NowNs() const { return std::chrono::nanoseconds(Clock::now() - start_).count(); }

  absl::StatusOr<int64_t> SinceOriginNs(const cuda::Event& event) const {
    float milliseconds = 0;
    PENSTOCK_RETURN_IF_ERROR(
        cuda::CudaStatus(cudaEventElapsedTime(&milliseconds, parts_.origin.get(), event.get()),
                         "timeline of the step"));
    return static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
  }

  absl::Status Report(StepResult& result) {
    result.loss_sum = *parts_.sums.loss_sum();
    result.labelled_tokens = *parts_.sums.labelled_tokens();
    result.decision = updates_.decided();
    result.busy_seconds = {};
    for (size_t i = 0; i < program_->ops.size(); ++i) {
      const Lane lane = program_->ops[i].lane;
      OpTime& time = times_[i];
      if (lane != Lane::kHost) {
        PENSTOCK_ASSIGN_OR_RETURN(time.start_ns, SinceOriginNs(events_[i].start));
        PENSTOCK_ASSIGN_OR_RETURN(time.end_ns, SinceOriginNs(events_[i].end));
      }
      result.busy_seconds[static_cast<int>(lane)] +=
          static_cast<double>(time.end_ns - time.start_ns) * 1e-9;
    }
    return absl::OkStatus();
  }

  template <typename T = bf16>
  T* Ptr(BufferId id) const {
    const Buffer& buffer = program_->buffer(id);
    std::byte* arena =
        buffer.arena == Arena::kHost ? parts_.host_arena.data() : parts_.arena.data();
    return reinterpret_cast<T*>(arena + buffer.offset);
  }
  std::byte* Bytes(BufferId id) const { return Ptr<std::byte>(id); }
  float* Gradients(BufferId id) const { return Ptr<float>(id); }

  absl::Status Copy(Lane lane, void* to, const void* from, int64_t bytes, const char* what) const {
    return cuda::CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, StreamOf(lane)),
                            what);
  }

  absl::Status RunOp(const FetchWeights& op, Lane lane) {
    const auto& hi = store_.block(op.block).hi;
    return Copy(lane, Bytes(op.weights), hi.data(), static_cast<int64_t>(hi.size_bytes()),
                "fetch of weights");
  }

  absl::Status RunOp(const EmbedForward& op, Lane) {
    return decoder_.Embed(compute_, inputs_.batch(op.micro_batch), Ptr(op.weights), Ptr(op.out));
  }

  absl::Status RunOp(const ForwardBlock& op, Lane) {
    return decoder_.Forward(compute_, Index(op.block) - 1, inputs_.batch(op.micro_batch),
                            {.weights = Ptr(op.weights),
                             .in = Ptr(op.in),
                             .out = Ptr(op.out),
                             .attention = Bytes(op.attention),
                             .mlp = Bytes(op.mlp),
                             .saved = op.saved,
                             .scratch = Bytes(op.scratch)});
  }

  absl::Status RunOp(const HeadLoss& op, Lane) {
    const bool tied = op.head_weights != op.weights;
    const BlockLayout& layout = store_.layout().blocks[Index(op.block)];
    const int64_t matrix = tied ? 0 : layout.OffsetOf(Role::kHeadWeight);
    const bool gradients = op.d_in != kNoBuffer;
    const double count = static_cast<double>(std::max<int64_t>(1, input_->labelled_tokens));
    return decoder_.HeadLoss(
        compute_, inputs_.batch(op.micro_batch),
        {.weights = Ptr(op.weights),
         .head_weights = Ptr(op.head_weights) + matrix,
         .in = Ptr(op.in),
         .d_in = gradients ? Ptr(op.d_in) : nullptr,
         .norm_gradient = gradients ? Gradients(op.gradients) : nullptr,
         .head_gradient = gradients ? Gradients(op.head_gradients) + matrix : nullptr,
         .mode = ToWriteMode(op.accumulate),
         .gradient_scale = static_cast<float>(1.0 / count),
         .loss_sum = parts_.sums.loss_sum(),
         .labelled_tokens = parts_.sums.labelled_tokens(),
         .scratch = Bytes(op.scratch)});
  }

  absl::Status RunOp(const BackwardBlock& op, Lane) {
    return decoder_.Backward(compute_, Index(op.block) - 1, inputs_.batch(op.micro_batch),
                             {.weights = Ptr(op.weights),
                              .in = Ptr(op.in),
                              .attention = Bytes(op.attention),
                              .mlp = Bytes(op.mlp),
                              .saved = op.saved,
                              .d = Ptr(op.d),
                              .gradients = Gradients(op.gradients),
                              .mode = ToWriteMode(op.accumulate),
                              .scratch = Bytes(op.scratch)});
  }

  absl::Status RunOp(const EmbedBackward& op, Lane) {
    return decoder_.EmbedBackward(compute_, inputs_.batch(op.micro_batch), Ptr(op.d),
                                  Gradients(op.gradients), ToWriteMode(op.accumulate),
                                  Bytes(op.scratch));
  }

  absl::Status RunOp(const StoreSaved& op, Lane lane) {
    return Copy(lane, Bytes(op.host), Bytes(op.device), program_->buffer(op.host).bytes,
                "store of saved tensors");
  }

  absl::Status RunOp(const FetchSaved& op, Lane lane) {
    return Copy(lane, Bytes(op.device), Bytes(op.host), program_->buffer(op.host).bytes,
                "fetch of saved tensors");
  }

  absl::Status RunOp(const RoundGradients& op, Lane) {
    return RoundToBf16(compute_, Gradients(op.sums), Ptr(op.out), Layout(op.block).size);
  }

  bool rounded() const { return program_->gradient_type == GradientType::kBfloat16; }

  absl::Status RunOp(const ReduceNorm& op, Lane) {
    double* sum = parts_.sums.norm_partial(op.block);
    for (const Range& range : ranges_[Index(op.block)]) {
      PENSTOCK_RETURN_IF_ERROR(
          rounded()
              ? SumOfSquares(compute_, Ptr(op.gradients) + range.begin, range.count, sum)
              : SumOfSquares(compute_, Gradients(op.gradients) + range.begin, range.count, sum));
    }
    return absl::OkStatus();
  }

  absl::Status RunOp(const StoreGradients& op, Lane lane) {
    std::byte* plane =
        op.host == kNoBuffer ? store_.block(op.block).gradient_bytes() : Bytes(op.host);
    const int64_t element = GradientBytesPerElement(program_->gradient_type);
    for (const Range& range : ranges_[Index(op.block)]) {
      const int64_t at = range.begin * element;
      PENSTOCK_RETURN_IF_ERROR(Copy(lane, plane + at, Bytes(op.gradients) + at,
                                    range.count * element, "store of gradients"));
    }
    return absl::OkStatus();
  }

  absl::Status RunOp(const StoreSums& op, Lane lane) {
    float* sums = store_.block(op.block).sums.data();
    for (const Range& range : ranges_[Index(op.block)]) {
      PENSTOCK_RETURN_IF_ERROR(Copy(lane, sums + range.begin, Gradients(op.sums) + range.begin,
                                    range.count * 4, "store of gradient sums"));
    }
    return absl::OkStatus();
  }

  absl::Status RunOp(const FetchSums& op, Lane lane) {
    const float* sums = store_.block(op.block).sums.data();
    for (const Range& range : ranges_[Index(op.block)]) {
      PENSTOCK_RETURN_IF_ERROR(Copy(lane, Gradients(op.sums) + range.begin, sums + range.begin,
                                    range.count * 4, "fetch of gradient sums"));
    }
    return absl::OkStatus();
  }

  absl::Status RunOp(const ClipScale&, Lane) {
    const int64_t labels = *parts_.sums.labelled_tokens();
    // Before anything is updated: a step whose labels were miscounted has a wrong scale.
    PENSTOCK_RETURN_IF_ERROR(CheckLabelCount(labels, input_->labelled_tokens));
    updates_.Decide(DecideStep(*parts_.sums.loss_sum(), labels, parts_.sums.sum_of_squares(),
                               input_->optimizer.max_grad_norm),
                    input_->optimizer);
    return absl::OkStatus();
  }

  absl::Status RunOp(const DecideUnclipped&, Lane) {
    const int64_t labels = *parts_.sums.labelled_tokens();
    PENSTOCK_RETURN_IF_ERROR(CheckLabelCount(labels, input_->labelled_tokens));
    PENSTOCK_ASSIGN_OR_RETURN(const StepDecision decision,
                              DecideBeforeNorm(*parts_.sums.loss_sum(), labels, input_->optimizer));
    updates_.Decide(decision, input_->optimizer);
    return absl::OkStatus();
  }

  absl::Status RunOp(const UpdateHost& op, Lane) {
    if (op.gradients == kNoBuffer) return UpdateBlock(host_, store_, op.block, op.part, updates_);
    return UpdateBlockFrom(host_, store_, op.block, Bytes(op.gradients), program_->gradient_type,
                           *parts_.sums.norm_partial(op.block), updates_);
  }

  DeviceMoments MomentsOf(BlockId block, BufferId id) const {
    return DeviceMomentsAt(Bytes(id), Layout(block).size);
  }

  absl::Status RunOp(const UpdateDevice& op, Lane) {
    const DeviceMoments moments = MomentsOf(op.block, op.moments);
    UpdateArrays arrays = {.hi = Ptr<uint16_t>(op.weights),
                           .lo = Ptr<int16_t>(op.correction),
                           .m = moments.m,
                           .v = moments.v,
                           .part = op.part};
    if (rounded()) {
      arrays.gradient_bf16 = Ptr(op.gradients);
    } else {
      arrays.gradient = Gradients(op.gradients);
    }
    return UpdateParameters(compute_, Layout(op.block), arrays, store_.updates_applied, updates_);
  }

  absl::Status RunOp(const FetchMaster& op, Lane lane) {
    const BlockStore& from = store_.block(op.block);
    const int64_t bytes = Layout(op.block).size * 2;
    PENSTOCK_RETURN_IF_ERROR(
        Copy(lane, Bytes(op.weights), from.hi.data(), bytes, "fetch of weights"));
    return Copy(lane, Bytes(op.correction), from.lo.data(), bytes, "fetch of a correction plane");
  }

  absl::Status RunOp(const StoreMaster& op, Lane lane) {
    updates_.AskToChange(op.block);
    BlockStore& to = store_.block(op.block);
    const int64_t bytes = Layout(op.block).size * 2;
    PENSTOCK_RETURN_IF_ERROR(
        Copy(lane, to.hi.data(), Bytes(op.weights), bytes, "store of weights"));
    return Copy(lane, to.lo.data(), Bytes(op.correction), bytes, "store of a correction plane");
  }

  absl::Status RunOp(const FetchMoments& op, Lane lane) {
    const DeviceMoments to = MomentsOf(op.block, op.moments);
    const BlockStore& from = store_.block(op.block);
    const int64_t bytes = Layout(op.block).size * 4;
    PENSTOCK_RETURN_IF_ERROR(Copy(lane, to.m, from.m.data(), bytes, "fetch of moments"));
    return Copy(lane, to.v, from.v.data(), bytes, "fetch of moments");
  }

  absl::Status RunOp(const StoreMoments& op, Lane lane) {
    updates_.AskToChange(op.block);
    const DeviceMoments from = MomentsOf(op.block, op.moments);
    BlockStore& to = store_.block(op.block);
    const int64_t bytes = Layout(op.block).size * 4;
    PENSTOCK_RETURN_IF_ERROR(Copy(lane, to.m.data(), from.m, bytes, "store of moments"));
    return Copy(lane, to.v.data(), from.v, bytes, "store of moments");
  }

  const BlockLayout& Layout(BlockId block) const { return store_.layout().blocks[Index(block)]; }

  HostStore& store_;
  Parts parts_;
  const cuda::Context compute_;  // compute lane
  ThreadPool host_pool_;
  cpu::Context host_{&host_pool_};  // host lane
  StepInputs inputs_;
  Decoder<bf16, const cuda::Context> decoder_;
  std::vector<std::vector<Range>> ranges_;  // by block
  std::vector<OpEvents> events_;            // by op; likewise times_
  std::vector<OpTime> times_;
  std::map<const StepProgram*, std::vector<std::string>> texts_by_program_;

  // Of the current run.
  const StepProgram* program_ = nullptr;
  const std::vector<std::string>* op_texts_ = nullptr;
  const StepInput* input_ = nullptr;
  StepUpdates updates_;  // host lane decides, update ops read
  Clock::time_point start_;

  LaneRunner lanes_;  // last: its threads use all of the above
};

// Unavailable without a device, Unimplemented on a card without bf16.
absl::Status CheckDevice() {
  int device = 0;
  PENSTOCK_RETURN_IF_ERROR(cuda::CudaStatus(cudaGetDevice(&device), "cudaGetDevice"));
  cudaDeviceProp properties;
  PENSTOCK_RETURN_IF_ERROR(
      cuda::CudaStatus(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties"));
  return CheckComputeCapability(properties.name, properties.major, properties.minor);
}

absl::StatusOr<cuda::DeviceMemory> UploadRopeTable(const ModelSpec& spec, int64_t positions) {
  const int64_t bytes = RopeTableBytes(spec, positions);
  PENSTOCK_ASSIGN_OR_RETURN(HostMemory table, HostMemory::Allocate(bytes));
  FillRopeTable(RopeInverseFrequencies(spec.rope, spec.head_dim), positions,
                reinterpret_cast<float*>(table.data()));
  PENSTOCK_ASSIGN_OR_RETURN(cuda::DeviceMemory device, cuda::DeviceMemory::Allocate(bytes));
  PENSTOCK_RETURN_IF_ERROR(
      cuda::CudaStatus(cudaMemcpy(device.data(), table.data(), bytes, cudaMemcpyHostToDevice),
                       "upload of the rotary table"));
  return device;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> CreateCudaExecutor(const ModelSpec& spec,
                                                             HostStore& store,
                                                             const ExecutorOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(CheckDevice());
  Parts parts;
  PENSTOCK_ASSIGN_OR_RETURN(parts.arena, cuda::DeviceMemory::Allocate(options.arena_bytes));
  PENSTOCK_ASSIGN_OR_RETURN(parts.host_arena, HostMemory::Allocate(options.host_arena_bytes));
  if (options.arena_fill) {
    std::memset(parts.host_arena.data(), *options.arena_fill, parts.host_arena.bytes());
    PENSTOCK_RETURN_IF_ERROR(
        cuda::CudaStatus(cudaMemset(parts.arena.data(), *options.arena_fill, parts.arena.bytes()),
                         "fill of the arena"));
  }
  ThreadPool pool(options.threads, PlacesForPool(options.threads));
  const std::span<std::byte> host_arena(parts.host_arena.data(), parts.host_arena.bytes());
  TouchPages(host_arena, pool);
  PENSTOCK_ASSIGN_OR_RETURN(parts.pinned_host_arena,
                            cuda::PinnedRanges::Register({host_arena}, options.page_lock, pool));
  PENSTOCK_ASSIGN_OR_RETURN(parts.rope_table, UploadRopeTable(spec, options.max_positions));
  PENSTOCK_ASSIGN_OR_RETURN(parts.context, cuda::OwnedContext::Create());
  PENSTOCK_ASSIGN_OR_RETURN(parts.copy_in, cuda::CreateStream());
  PENSTOCK_ASSIGN_OR_RETURN(parts.copy_out, cuda::CreateStream());
  PENSTOCK_ASSIGN_OR_RETURN(parts.origin, cuda::CreateEvent());
  PENSTOCK_ASSIGN_OR_RETURN(parts.sums, StepSums::Create(spec.num_blocks()));
  PENSTOCK_ASSIGN_OR_RETURN(
      parts.store, cuda::PinnedRanges::Register(store.block_memory(), options.page_lock, pool));
  // The table and the fill went through the default stream, for which the lanes' do not wait.
  PENSTOCK_RETURN_IF_ERROR(
      cuda::CudaStatus(cudaStreamSynchronize(nullptr), "upload of the rotary table"));
  return std::make_unique<CudaExecutor>(spec, store, options, std::move(parts));
}

}  // namespace penstock
