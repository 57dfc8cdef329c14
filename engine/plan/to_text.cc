#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/plan/step_program.h"

namespace penstock {
namespace {

const char* Name(SaveLevel level) {
  switch (level) {
    case SaveLevel::kAll:
      return "all";
    case SaveLevel::kAttention:
      return "attention";
    case SaveLevel::kInput:
      return "input";
  }
  return "?";
}

const char* Name(Accumulate accumulate) {
  return accumulate == Accumulate::kAdd ? "add" : "overwrite";
}

// The name of an op and its operands.
class BodyText {
 public:
  explicit BodyText(const StepProgram& program) : program_(program) {}

  std::string operator()(const FetchWeights& op) const {
    return absl::StrCat("fetch_weights ", Block(op.block), " -> ", Buf(op.weights));
  }
  std::string operator()(const EmbedForward& op) const {
    return absl::StrCat("embed_forward ", Mb(op.micro_batch), " weights=", Buf(op.weights), " -> ",
                        Buf(op.out));
  }
  std::string operator()(const ForwardBlock& op) const {
    return absl::StrCat("forward_block ", Block(op.block), " ", Mb(op.micro_batch),
                        " weights=", Buf(op.weights), " in=", Buf(op.in), " -> ", Buf(op.out),
                        " attention=", Buf(op.attention), " mlp=", Buf(op.mlp));
  }
  std::string operator()(const HeadLoss& op) const {
    std::string text = absl::StrCat("head_loss ", Block(op.block), " ", Mb(op.micro_batch),
                                    " weights=", Buf(op.weights), " head=", Buf(op.head_weights),
                                    " in=", Buf(op.in));
    if (op.d_in != kNoBuffer) {
      absl::StrAppend(&text, " -> ", Buf(op.d_in), " gradients=", Buf(op.gradients),
                      " head_gradients=", Buf(op.head_gradients), " ", Name(op.accumulate));
    }
    return text;
  }
  std::string operator()(const BackwardBlock& op) const {
    return absl::StrCat("backward_block ", Block(op.block), " ", Mb(op.micro_batch),
                        " saved=", Name(op.saved), " weights=", Buf(op.weights), " in=", Buf(op.in),
                        " attention=", Buf(op.attention), " mlp=", Buf(op.mlp), " d=", Buf(op.d),
                        " gradients=", Buf(op.gradients), " ", Name(op.accumulate));
  }
  std::string operator()(const EmbedBackward& op) const {
    return absl::StrCat("embed_backward ", Mb(op.micro_batch), " d=", Buf(op.d),
                        " gradients=", Buf(op.gradients), " ", Name(op.accumulate));
  }
  std::string operator()(const ReduceNorm& op) const {
    return absl::StrCat("reduce_norm ", Block(op.block), " gradients=", Buf(op.gradients));
  }
  std::string operator()(const StoreGradients& op) const {
    return absl::StrCat("store_gradients ", Block(op.block), " gradients=", Buf(op.gradients));
  }
  std::string operator()(const ClipScale&) const { return "clip_scale"; }
  std::string operator()(const UpdateHost& op) const {
    return absl::StrCat("update_host ", Block(op.block));
  }

 private:
  // Names must not be trusted to exist: broken programs are printed too.
  std::string Buf(BufferId id) const {
    const int32_t index = Index(id);
    if (index < 0 || index >= static_cast<int32_t>(program_.buffers.size())) {
      return absl::StrCat("buffer#", index);
    }
    return program_.buffers[index].name;
  }
  static std::string Block(BlockId id) { return absl::StrCat("block=", Index(id)); }
  static std::string Mb(int32_t micro_batch) { return absl::StrCat("mb=", micro_batch); }

  const StepProgram& program_;
};

}  // namespace

const char* LaneName(Lane lane) {
  switch (lane) {
    case Lane::kCopyIn:
      return "copy_in";
    case Lane::kCompute:
      return "compute";
    case Lane::kCopyOut:
      return "copy_out";
    case Lane::kHost:
      return "host";
  }
  return "?";
}

const char* BufferClassName(BufferClass buffer_class) {
  switch (buffer_class) {
    case BufferClass::kWeights:
      return "weight slots";
    case BufferClass::kActivation:
      return "activations";
    case BufferClass::kSaved:
      return "saved tensors";
    case BufferClass::kGradient:
      return "gradient sums";
    case BufferClass::kScratch:
      return "scratch and logits chunk";
  }
  return "?";
}

std::string OpText(const StepProgram& program, OpId id) {
  const Op& op = program.ops[Index(id)];
  std::string text = absl::StrFormat("%%%d %s %s", Index(id), LaneName(op.lane),
                                     std::visit(BodyText(program), op.body));
  if (!op.after.empty()) {
    absl::StrAppend(&text,
                    " after=", absl::StrJoin(op.after, ",", [](std::string* out, OpId after) {
                      absl::StrAppend(out, "%", Index(after));
                    }));
  }
  return text;
}

std::string ToText(const StepProgram& program) {
  std::string text =
      absl::StrCat("program blocks=", program.num_blocks, " micro_batches=", program.micro_batches,
                   " arena=", program.arena_bytes, "\n");
  for (const Buffer& buffer : program.buffers) {
    absl::StrAppend(&text, "buffer ", buffer.name, " (", BufferClassName(buffer.buffer_class),
                    ") offset=", buffer.offset, " bytes=", buffer.bytes, "\n");
  }
  for (size_t i = 0; i < program.ops.size(); ++i) {
    absl::StrAppend(&text, OpText(program, OpId{static_cast<int32_t>(i)}), "\n");
  }
  return text;
}

}  // namespace penstock
