#include "engine/plan/verify.h"

#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/plan/accesses.h"
#include "engine/plan/hazards.h"

namespace penstock {
namespace {

absl::Status Broken(const std::string& message) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kInternal,
               absl::StrCat("step program: ", message));
}

std::string ContentText(const Content& content) {
  const std::string of = absl::StrCat(" of block ", content.block);
  const std::string of_mb = absl::StrCat(of, " micro-batch ", content.micro_batch);
  switch (content.meaning) {
    case Meaning::kNothing:
      return "nothing";
    case Meaning::kWeights:
      return absl::StrCat("weights", of);
    case Meaning::kActivation:
      return absl::StrCat("input", of_mb);
    case Meaning::kActivationGradient:
      return absl::StrCat("input gradient", of_mb);
    case Meaning::kAttentionTensors:
      return absl::StrCat("attention tensors", of_mb);
    case Meaning::kMlpTensors:
      return absl::StrCat("MLP tensors", of_mb);
    case Meaning::kGradients:
      return absl::StrCat("gradient sums", of, " over ", content.micro_batch, " terms");
    case Meaning::kValue:
      return "a value of this step";
  }
  return "?";
}

// Ids in range, so that AccessesOf may be called.
class IdCheck {
 public:
  explicit IdCheck(const StepProgram& program) : program_(program) {}

  bool operator()(const FetchWeights& op) const { return Ok(op.block) && Ok(op.weights); }
  bool operator()(const EmbedForward& op) const {
    return OkMb(op.micro_batch) && Ok(op.weights) && Ok(op.out);
  }
  bool operator()(const ForwardBlock& op) const {
    return Ok(op.block) && OkMb(op.micro_batch) && Ok(op.weights) && Ok(op.in) && Ok(op.out) &&
           Ok(op.attention) && Ok(op.mlp) && Ok(op.scratch);
  }
  bool operator()(const HeadLoss& op) const {
    const bool forward = Ok(op.block) && OkMb(op.micro_batch) && Ok(op.weights) &&
                         Ok(op.head_weights) && Ok(op.in) && Ok(op.scratch);
    if (op.d_in == kNoBuffer) return forward;
    return forward && Ok(op.d_in) && Ok(op.gradients) && Ok(op.head_gradients);
  }
  bool operator()(const BackwardBlock& op) const {
    return Ok(op.block) && OkMb(op.micro_batch) && Ok(op.weights) && Ok(op.in) &&
           Ok(op.attention) && Ok(op.mlp) && Ok(op.d) && Ok(op.gradients) && Ok(op.scratch);
  }
  bool operator()(const EmbedBackward& op) const {
    return OkMb(op.micro_batch) && Ok(op.d) && Ok(op.gradients) && Ok(op.scratch);
  }
  bool operator()(const ReduceNorm& op) const { return Ok(op.block) && Ok(op.gradients); }
  bool operator()(const StoreGradients& op) const { return Ok(op.block) && Ok(op.gradients); }
  bool operator()(const ClipScale&) const { return true; }
  bool operator()(const UpdateHost& op) const { return Ok(op.block); }

 private:
  bool Ok(BlockId id) const { return Index(id) >= 0 && Index(id) < program_.num_blocks; }
  bool Ok(BufferId id) const {
    return Index(id) >= 0 && Index(id) < static_cast<int32_t>(program_.buffers.size());
  }
  bool OkMb(int32_t mb) const { return mb >= 0 && mb < program_.micro_batches; }

  const StepProgram& program_;
};

absl::Status CheckShape(const StepProgram& program) {
  for (const Buffer& buffer : program.buffers) {
    if (buffer.offset < 0 || buffer.bytes < 0 || buffer.offset > program.arena_bytes ||
        buffer.bytes > program.arena_bytes - buffer.offset) {
      return Error(absl::StatusCode::kResourceExhausted, reason::kDeviceMemoryInsufficient,
                   absl::StrCat("step program: buffer ", buffer.name, " at ", buffer.offset,
                                " with ", buffer.bytes, " bytes lies outside the budget of ",
                                program.arena_bytes, " bytes"));
    }
  }
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const OpId id{static_cast<int32_t>(i)};
    if (!std::visit(IdCheck(program), op.body)) {
      return Broken(absl::StrCat("op names a block, micro-batch or buffer that is not there: ",
                                 OpText(program, id)));
    }
    for (OpId after : op.after) {
      if (Index(after) < 0 || Index(after) >= Index(id)) {
        return Broken(
            absl::StrCat("op waits for one that is not before it: ", OpText(program, id)));
      }
    }
  }
  return absl::OkStatus();
}

// Walks the list, which is one of the orders the program allows; the hazard check shows that all
// the others give the same bits.
class Walker {
 public:
  explicit Walker(const StepProgram& program)
      : program_(program),
        tracker_(program),
        clock_(program.ops.size()),
        buffers_(program.buffers.size()) {
    for (const Op& op : program.ops) {
      const auto* loss = std::get_if<HeadLoss>(&op.body);
      if (loss != nullptr && loss->head_gradients != loss->gradients) tied_ = true;
    }
  }

  absl::Status Step(int32_t index) {
    const Op& op = program_.ops[index];
    clock_.Append(op);
    const AccessList accesses = AccessesOf(program_, op);
    for (const Access& access : accesses) {
      PENSTOCK_RETURN_IF_ERROR(CheckOrder(index, access));
      PENSTOCK_RETURN_IF_ERROR(CheckContent(index, access));
    }
    PENSTOCK_RETURN_IF_ERROR(CheckVersions(index, op));
    for (const Access& access : accesses) {
      Leave(access);
      tracker_.Record(index, op.lane, access);
    }
    return absl::OkStatus();
  }

 private:
  std::string Text(int32_t index) const { return OpText(program_, OpId{index}); }

  absl::Status CheckOrder(int32_t index, const Access& access) const {
    for (int32_t earlier : tracker_.Predecessors(access)) {
      if (earlier < 0 || clock_.Follows(earlier, program_.ops[earlier].lane)) continue;
      return Broken(absl::StrCat("no order between [", Text(earlier), "] and [", Text(index),
                                 "], which touch the same bytes"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckContent(int32_t index, const Access& access) const {
    if (access.mode == AccessMode::kWrite) return absl::OkStatus();
    Content expected = access.reads;
    const std::optional<Content> found = Find(access);
    // Sums must be complete where they are consumed; where they are added to, any count is fine.
    if (expected.meaning == Meaning::kGradients) {
      expected.micro_batch = access.mode == AccessMode::kUpdate && found
                                 ? found->micro_batch
                                 : program_.micro_batches * (tied_ && expected.block == 0 ? 2 : 1);
    }
    if (found == expected) return absl::OkStatus();
    return Broken(absl::StrCat("[", Text(index), "] expects ", ContentText(expected), " but finds ",
                               found ? ContentText(*found) : "nothing written"));
  }

  std::optional<Content> Find(const Access& access) const {
    if (access.kind == ResourceKind::kBuffer) return buffers_[access.index];
    // Planes and moments are there before the step; the rest must be made in it.
    const bool lasting =
        access.kind == ResourceKind::kHostWeights || access.kind == ResourceKind::kHostOptimizer;
    if (lasting || host_.contains({access.kind, access.index})) return Content{Meaning::kValue};
    return std::nullopt;
  }

  absl::Status CheckVersions(int32_t index, const Op& op) {
    if (const auto* update = std::get_if<UpdateHost>(&op.body)) {
      if (!updated_.insert(Index(update->block)).second) {
        return Broken(absl::StrCat("second update of a block in one step: [", Text(index), "]"));
      }
    } else if (const auto* fetch = std::get_if<FetchWeights>(&op.body)) {
      const bool fresh = updated_.contains(Index(fetch->block));
      const auto [entry, first] = fetched_fresh_.emplace(Index(fetch->block), fresh);
      if (!first && entry->second != fresh) {
        return Broken(
            absl::StrCat("weights fetched before and after their update: [", Text(index), "]"));
      }
    }
    return absl::OkStatus();
  }

  void Leave(const Access& access) {
    if (access.mode == AccessMode::kRead) return;
    if (access.kind != ResourceKind::kBuffer) {
      host_.insert({access.kind, access.index});
      return;
    }
    Content left = access.writes;
    if (left.meaning == Meaning::kGradients) {
      const bool adds = access.mode == AccessMode::kUpdate;
      left.micro_batch = adds ? buffers_[access.index]->micro_batch + 1 : 1;
    }
    for (int32_t other : tracker_.Overlapping(access.index)) buffers_[other].reset();
    buffers_[access.index] = left;
  }

  const StepProgram& program_;
  HazardTracker tracker_;
  OrderClock clock_;
  bool tied_ = false;  // the head adds to the embedding's gradient sums
  std::vector<std::optional<Content>> buffers_;
  std::set<std::pair<ResourceKind, int32_t>> host_;
  std::set<int32_t> updated_;
  std::map<int32_t, bool> fetched_fresh_;
};

}  // namespace

absl::Status Verify(const StepProgram& program) {
  PENSTOCK_RETURN_IF_ERROR(CheckShape(program));
  Walker walker(program);
  for (size_t i = 0; i < program.ops.size(); ++i) {
    PENSTOCK_RETURN_IF_ERROR(walker.Step(static_cast<int32_t>(i)));
  }
  return absl::OkStatus();
}

}  // namespace penstock
