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

const char* Name(SavedPart part) {
  switch (part) {
    case SavedPart::kInput:
      return "input";
    case SavedPart::kAttention:
      return "attention";
    case SavedPart::kMlp:
      return "mlp";
  }
  return "?";
}

const char* Name(Updates updates) {
  switch (updates) {
    case Updates::kNone:
      return "none";
    case Updates::kPending:
      return "pending";
    case Updates::kThisStep:
      return "this_step";
  }
  return "?";
}

const char* Name(HeldContent content) {
  switch (content) {
    case HeldContent::kWeights:
      return "weights";
    case HeldContent::kCorrection:
      return "correction";
    case HeldContent::kMoments:
      return "moments";
    case HeldContent::kGradients:
      return "gradients";
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
  std::string operator()(const StoreSaved& op) const {
    return absl::StrCat("store_saved ", Block(op.block), " ", Mb(op.micro_batch), " ",
                        Name(op.part), " ", Buf(op.device), " -> ", Buf(op.host));
  }
  std::string operator()(const FetchSaved& op) const {
    return absl::StrCat("fetch_saved ", Block(op.block), " ", Mb(op.micro_batch), " ",
                        Name(op.part), " ", Buf(op.host), " -> ", Buf(op.device));
  }
  std::string operator()(const RoundGradients& op) const {
    return absl::StrCat("round_gradients ", Block(op.block), " sums=", Buf(op.sums), " -> ",
                        Buf(op.out));
  }
  std::string operator()(const ReduceNorm& op) const {
    return absl::StrCat("reduce_norm ", Block(op.block), " gradients=", Buf(op.gradients));
  }
  std::string operator()(const StoreGradients& op) const {
    return absl::StrCat("store_gradients ", Block(op.block), " gradients=", Buf(op.gradients),
                        op.host == kNoBuffer ? "" : absl::StrCat(" -> ", Buf(op.host)));
  }
  std::string operator()(const StoreSums& op) const {
    return absl::StrCat("store_sums ", Block(op.block), " ", Buf(op.sums), " terms=", op.terms);
  }
  std::string operator()(const FetchSums& op) const {
    return absl::StrCat("fetch_sums ", Block(op.block), " -> ", Buf(op.sums), " terms=", op.terms);
  }
  std::string operator()(const ClipScale&) const { return "clip_scale"; }
  std::string operator()(const DecideUnclipped&) const { return "decide_unclipped"; }
  std::string operator()(const UpdateHost& op) const {
    return absl::StrCat(
        "update_host ", Block(op.block),
        op.gradients == kNoBuffer ? "" : absl::StrCat(" gradients=", Buf(op.gradients)),
        Part(op.part));
  }
  std::string operator()(const UpdateDevice& op) const {
    return absl::StrCat("update_device ", Block(op.block), " weights=", Buf(op.weights),
                        " correction=", Buf(op.correction), " moments=", Buf(op.moments),
                        " gradients=", Buf(op.gradients), Part(op.part));
  }
  std::string operator()(const FetchMaster& op) const {
    return absl::StrCat("fetch_master ", Block(op.block), " -> ", Buf(op.weights), " ",
                        Buf(op.correction));
  }
  std::string operator()(const StoreMaster& op) const {
    return absl::StrCat("store_master ", Block(op.block), " ", Buf(op.weights), " ",
                        Buf(op.correction));
  }
  std::string operator()(const FetchMoments& op) const {
    return absl::StrCat("fetch_moments ", Block(op.block), " -> ", Buf(op.moments));
  }
  std::string operator()(const StoreMoments& op) const {
    return absl::StrCat("store_moments ", Block(op.block), " ", Buf(op.moments));
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
  static std::string Part(UpdatePart part) {
    return part == UpdatePart::kAll ? "" : absl::StrCat(" part=", UpdatePartName(part));
  }
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
    case BufferClass::kState:
      return "optimizer state";
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
                   program.gradient_type == GradientType::kBfloat16 ? " gradients=bf16" : "",
                   " updates=", Name(program.updates), " arena=", program.arena_bytes);
  if (program.host_arena_bytes > 0) {
    absl::StrAppend(&text, " host_arena=", program.host_arena_bytes);
  }
  absl::StrAppend(&text, "\n");
  for (const Buffer& buffer : program.buffers) {
    absl::StrAppend(&text, buffer.arena == Arena::kHost ? "host buffer " : "buffer ", buffer.name,
                    " (", BufferClassName(buffer.buffer_class), ") offset=", buffer.offset,
                    " bytes=", buffer.bytes, "\n");
  }
  const auto append_held = [&](const char* verb, const std::vector<Held>& list) {
    for (const Held& held : list) {
      absl::StrAppend(&text, verb, " ", Name(held.content), " block=", Index(held.block), " in ",
                      program.buffer(held.buffer).name, "\n");
    }
  };
  append_held("finds", program.finds);
  append_held("leaves", program.leaves);
  for (size_t i = 0; i < program.ops.size(); ++i) {
    absl::StrAppend(&text, OpText(program, OpId{static_cast<int32_t>(i)}), "\n");
  }
  return text;
}

}  // namespace penstock
