#include "engine/plan/op_cost.h"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr double kFloat = 4;
// Of a parameter, where moments are fp32.
constexpr double kMasterBytes = 4, kMomentsBytes = 2 * kFloat;

class Costs {
 public:
  Costs(const StepProgram& program, const ModelSpec& spec, const ModelLayout& layout,
        const CostInput& input, const MachineProfile& machine)
      : program_(program), spec_(spec), layout_(layout), input_(input), machine_(machine) {
    const double hidden = static_cast<double>(spec.hidden_size);
    const double query = static_cast<double>(spec.q_size());
    const double key_value = static_cast<double>(spec.kv_size());
    const double intermediate = static_cast<double>(spec.intermediate_size);
    repeats_ = input.micro_batches_per_op;
    tokens_ = static_cast<double>(input.tokens_per_micro_batch) * repeats_;
    element_ = static_cast<double>(input.element_bytes);
    attention_ = Product(hidden, query + 2 * key_value) + Product(query, hidden);
    gate_up_ = Product(hidden, 2 * intermediate);
    down_ = Product(intermediate, hidden);
    // Elements that memory-bound kernels read and write, a token: norms, rotation, residuals.
    attention_elements_ = 6 * hidden + 3 * (query + key_value);
    mlp_elements_ = 4 * hidden + 3 * intermediate;
  }

  double operator()(const FetchWeights& op) const {
    return Size(op.block) * element_ / machine_.copy_in_bytes;
  }
  double operator()(const EmbedForward&) const { return Bytes(2 * tokens_ * Hidden() * element_); }
  double operator()(const ForwardBlock&) const { return AttentionSide() + GateUp() + down_; }
  double operator()(const HeadLoss& op) const {
    const double vocab = static_cast<double>(spec_.vocab_size);
    const bool gradients = op.d_in != kNoBuffer;
    // Logits are written, read and overwritten; the sums are read and written for every chunk.
    const double logits = tokens_ * vocab * element_ * (gradients ? 4 : 2);
    const double chunks =
        tokens_ / static_cast<double>(std::max<int64_t>(
                      1, std::min(input_.head_chunk_rows, input_.tokens_per_micro_batch)));
    const double sums = gradients ? chunks * Hidden() * vocab * 2 * kFloat : 0;
    return (gradients ? 3 : 1) * Product(Hidden(), vocab, chunks) + Bytes(logits + sums);
  }
  double operator()(const BackwardBlock& op) const {
    double seconds =
        2 * (attention_ + gate_up_ + down_) +
        2.5 * AttentionFlops() /
            AtLength(machine_.attention_backward_flops, machine_.long_attention_backward_flops) +
        Bytes(tokens_ * element_ * 2 * (attention_elements_ + mlp_elements_));
    // Gradient sums: written, and read before that by all but the first micro-batch.
    const double passes = 2 * repeats_ - (op.accumulate == Accumulate::kAdd ? 0 : 1);
    seconds += Bytes(Size(op.block) * kFloat * passes);
    if (op.saved != SaveLevel::kAll) seconds += GateUp();
    if (op.saved == SaveLevel::kInput) seconds += AttentionSide();
    return seconds;
  }
  double operator()(const EmbedBackward&) const {
    return Bytes(tokens_ * Hidden() * (element_ + 2 * kFloat));
  }
  double operator()(const StoreSaved& op) const {
    return repeats_ * static_cast<double>(program_.buffer(op.host).bytes) / machine_.copy_out_bytes;
  }
  double operator()(const FetchSaved& op) const {
    return repeats_ * static_cast<double>(program_.buffer(op.host).bytes) / machine_.copy_in_bytes;
  }
  double operator()(const RoundGradients& op) const { return Bytes(Size(op.block) * 6); }
  double operator()(const ReduceNorm& op) const { return Bytes(Size(op.block) * GradientBytes()); }
  double operator()(const StoreGradients& op) const {
    return Size(op.block) * GradientBytes() / machine_.copy_out_bytes;
  }
  double operator()(const StoreSums& op) const {
    return Size(op.block) * kFloat / machine_.copy_out_bytes;
  }
  double operator()(const FetchSums& op) const {
    return Size(op.block) * kFloat / machine_.copy_in_bytes;
  }
  double operator()(const ClipScale&) const { return 0; }
  double operator()(const DecideUnclipped&) const { return 0; }
  double operator()(const UpdateHost& op) const {
    return Size(op.block) * UpdateShare(op.part) / machine_.adamw_parameters;
  }
  // Planes read and written, moments read and, where they change, written, gradients read.
  double operator()(const UpdateDevice& op) const {
    const double moments = (ChangesMoments(op.part) ? 2 : 1) * kMomentsBytes;
    return Bytes(Size(op.block) * (2 * kMasterBytes + moments + GradientBytes()));
  }
  double operator()(const FetchMaster& op) const {
    return Size(op.block) * kMasterBytes / machine_.copy_in_bytes;
  }
  double operator()(const StoreMaster& op) const {
    return Size(op.block) * kMasterBytes / machine_.copy_out_bytes;
  }
  double operator()(const FetchMoments& op) const {
    return Size(op.block) * kMomentsBytes / machine_.copy_in_bytes;
  }
  double operator()(const StoreMoments& op) const {
    return Size(op.block) * kMomentsBytes / machine_.copy_out_bytes;
  }

 private:
  double Hidden() const { return static_cast<double>(spec_.hidden_size); }
  double Size(BlockId block) const {
    return static_cast<double>(layout_.blocks[Index(block)].size);
  }
  // Of both moments, a parameter.
  double Moments() const {
    constexpr int64_t kMany = 1 << 20;
    return static_cast<double>(MomentBytes(input_.moment_type, kMany)) / kMany;
  }
  // AdamW on the host is bound by its memory: what smaller moments leave of the bytes. Rounding to
  // 8 bits takes 16 cores longer than that (bench/results/2026-11-28-state-precision.md).
  double AdamwShare() const {
    constexpr double kInt8BlocksShare = 0.67;
    const double of_bytes = 1 - 2 * (8 - Moments()) / kAdamwHostBytes;
    return input_.moment_type == MomentType::kInt8Blocks ? std::max(of_bytes, kInt8BlocksShare)
                                                         : of_bytes;
  }
  double GradientBytes() const {
    return static_cast<double>(GradientBytesPerElement(program_.gradient_type));
  }
  // Of the time of the whole update in fp32.
  double UpdateShare(UpdatePart part) const {
    switch (part) {
      case UpdatePart::kAll:
        return AdamwShare();
      case UpdatePart::kWeights:
        return kAdamwWeightsShare;
      case UpdatePart::kMoments:
        return kAdamwMomentsShare * input_.share_of_step;
    }
    return 1;
  }
  double Bytes(double bytes) const { return bytes / machine_.device_bytes; }
  // [tokens, k] by [k, n], or one of its two backward products, which are as large; by parts of the
  // tokens, each of which reads the matrix.
  double Product(double k, double n, double parts) const {
    return 2 * tokens_ * k * n / machine_.matmul_flops +
           element_ * (tokens_ * (k + n) + parts * k * n) / machine_.matmul_bytes;
  }
  double Product(double k, double n) const { return Product(k, n, repeats_); }
  double AttentionFlops() const {
    return 2 * tokens_ * input_.mean_document_tokens * static_cast<double>(spec_.q_size());
  }
  // The rate for documents of the mean length: that of 1,024 tokens up to there, that of long ones
  // from 4,096 on. Between them the time of an operation goes by the length's logarithm, so that it
  // is linear in the reciprocals of both rates.
  double AtLength(double rate, double long_rate) const {
    const bool wide = spec_.head_dim > kWidestFusedHead && input_.element_bytes == 2;
    const double reached = wide ? kWideHeadShare : 1;
    const double share = std::clamp(std::log2(input_.mean_document_tokens / 1024) / 2, 0.0, 1.0);
    if (share == 0) return reached * rate;
    return reached / ((1 - share) / rate + share / long_rate);
  }
  double AttentionSide() const {
    return attention_ +
           AttentionFlops() /
               AtLength(machine_.attention_forward_flops, machine_.long_attention_forward_flops) +
           Bytes(tokens_ * element_ * attention_elements_);
  }
  double GateUp() const { return gate_up_ + Bytes(tokens_ * element_ * mlp_elements_); }

  const StepProgram& program_;
  const ModelSpec& spec_;
  const ModelLayout& layout_;
  const CostInput& input_;
  const MachineProfile& machine_;
  double attention_ = 0, gate_up_ = 0, down_ = 0;  // seconds of their products, once
  double attention_elements_ = 0, mlp_elements_ = 0;
  double tokens_ = 0, element_ = 0, repeats_ = 1;
};

}  // namespace

std::vector<double> OpSeconds(const StepProgram& program, const ModelSpec& spec,
                              const ModelLayout& layout, const CostInput& input,
                              const MachineProfile& machine) {
  const Costs costs(program, spec, layout, input, machine);
  std::vector<double> seconds;
  seconds.reserve(program.ops.size());
  for (const Op& op : program.ops) {
    const double repeats = op.lane == Lane::kCompute ? input.micro_batches_per_op : 1;
    seconds.push_back(machine.op_seconds * repeats + std::visit(costs, op.body));
  }
  return seconds;
}

}  // namespace penstock
