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
    case Meaning::kRounded:
      return absl::StrCat("bf16 gradients", of);
    case Meaning::kCorrection:
      return absl::StrCat("correction plane", of);
    case Meaning::kMoments:
      return absl::StrCat("moments", of);
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
  bool operator()(const StoreSaved& op) const {
    return Ok(op.block) && OkMb(op.micro_batch) && Ok(op.device) && OkHost(op.host) &&
           Holds(op.device, op.host);
  }
  bool operator()(const FetchSaved& op) const {
    return Ok(op.block) && OkMb(op.micro_batch) && Ok(op.device) && OkHost(op.host) &&
           Holds(op.device, op.host);
  }
  bool operator()(const RoundGradients& op) const {
    return Ok(op.block) && Ok(op.sums) && Ok(op.out);
  }
  bool operator()(const ReduceNorm& op) const { return Ok(op.block) && Ok(op.gradients); }
  bool operator()(const StoreGradients& op) const {
    return Ok(op.block) && Ok(op.gradients) && OkHostOrNone(op.host);
  }
  bool operator()(const StoreSums& op) const { return Ok(op.block) && Ok(op.sums) && op.terms > 0; }
  bool operator()(const FetchSums& op) const { return Ok(op.block) && Ok(op.sums) && op.terms > 0; }
  bool operator()(const ClipScale&) const { return true; }
  bool operator()(const DecideUnclipped&) const { return true; }
  bool operator()(const UpdateHost& op) const {
    const bool at_once = op.part == UpdatePart::kAll;
    return Ok(op.block) && (at_once ? OkHostOrNone(op.gradients) : op.gradients == kNoBuffer);
  }
  bool operator()(const UpdateDevice& op) const {
    return Ok(op.block) && Ok(op.weights) && Ok(op.correction) && Ok(op.moments) &&
           Ok(op.gradients) && ChangesWeights(op.part);
  }
  bool operator()(const FetchMaster& op) const {
    return Ok(op.block) && Ok(op.weights) && Ok(op.correction);
  }
  bool operator()(const StoreMaster& op) const {
    return Ok(op.block) && Ok(op.weights) && Ok(op.correction);
  }
  bool operator()(const FetchMoments& op) const { return Ok(op.block) && Ok(op.moments); }
  bool operator()(const StoreMoments& op) const { return Ok(op.block) && Ok(op.moments); }
  bool operator()(const Held& held) const { return Ok(held.block) && Ok(held.buffer); }

 private:
  bool Ok(BlockId id) const { return Index(id) >= 0 && Index(id) < program_.num_blocks; }
  bool InTable(BufferId id) const {
    return Index(id) >= 0 && Index(id) < static_cast<int32_t>(program_.buffers.size());
  }
  bool Ok(BufferId id) const { return InTable(id) && program_.buffer(id).arena == Arena::kDevice; }
  bool OkHost(BufferId id) const {
    return InTable(id) && program_.buffer(id).arena == Arena::kHost;
  }
  bool OkHostOrNone(BufferId id) const { return id == kNoBuffer || OkHost(id); }
  bool Holds(BufferId a, BufferId b) const {
    return program_.buffer(a).bytes == program_.buffer(b).bytes;
  }
  bool OkMb(int32_t mb) const { return mb >= 0 && mb < program_.micro_batches; }

  const StepProgram& program_;
};

absl::Status CheckShape(const StepProgram& program) {
  for (const Buffer& buffer : program.buffers) {
    const int64_t room =
        buffer.arena == Arena::kHost ? program.host_arena_bytes : program.arena_bytes;
    if (buffer.offset < 0 || buffer.bytes < 0 || buffer.offset > room ||
        buffer.bytes > room - buffer.offset) {
      return Error(
          absl::StatusCode::kResourceExhausted, reason::kDeviceMemoryInsufficient,
          absl::StrCat("step program: buffer ", buffer.name, " at ", buffer.offset, " with ",
                       buffer.bytes, " bytes lies outside the budget of ", room, " bytes"));
    }
  }
  for (const std::vector<Held>* list : {&program.finds, &program.leaves}) {
    for (const Held& held : *list) {
      if (!IdCheck(program)(held)) return Broken("it holds a block or buffer that is not there");
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
    for (const Held& held : program.finds) {
      buffers_[Index(held.buffer)] = ToContent(program, held);
    }
  }

  absl::Status Step(int32_t index) {
    const Op& op = program_.ops[index];
    clock_.Append(op);
    PENSTOCK_RETURN_IF_ERROR(CheckVersions(index, op));
    PENSTOCK_RETURN_IF_ERROR(CheckMoments(index, op));
    const AccessList accesses = AccessesOf(program_, op);
    for (const Access& access : accesses) {
      PENSTOCK_RETURN_IF_ERROR(CheckOrder(index, access));
      PENSTOCK_RETURN_IF_ERROR(CheckContent(index, access));
    }
    for (const Access& access : accesses) {
      Leave(access);
      tracker_.Record(index, op.lane, access);
    }
    return absl::OkStatus();
  }

  absl::Status CheckLeft() const {
    for (const Held& held : program_.leaves) {
      const std::optional<Content>& found = buffers_[Index(held.buffer)];
      const Content expected = ToContent(program_, held);
      if (found == expected) continue;
      return Broken(absl::StrCat("it should leave ", ContentText(expected), " in ",
                                 program_.buffer(held.buffer).name, " but leaves ",
                                 found ? ContentText(*found) : "nothing"));
    }
    if (moments_due_.empty()) return absl::OkStatus();
    return Broken(absl::StrCat("it updates the weights of block ", *moments_due_.begin(),
                               " and not its moments"));
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
    // Where sums are added to, any count of terms is fine; elsewhere they must be complete.
    const bool adds = access.mode == AccessMode::kUpdate &&
                      expected.meaning == Meaning::kGradients && access.writes == access.reads;
    if (adds && found) expected.micro_batch = found->micro_batch;
    if (found == expected) return absl::OkStatus();
    return Broken(absl::StrCat("[", Text(index), "] expects ", ContentText(expected), " but finds ",
                               found ? ContentText(*found) : "nothing written"));
  }

  std::optional<Content> Find(const Access& access) const {
    if (access.kind == ResourceKind::kBuffer) return buffers_[access.index];
    // Planes and moments are there before the step; the rest must be made in it.
    bool lasting =
        access.kind == ResourceKind::kHostWeights || access.kind == ResourceKind::kHostOptimizer;
    // So are gradients and clip scale of the step before, for its updates.
    if (program_.updates == Updates::kPending) {
      lasting |=
          access.kind == ResourceKind::kHostGradient || access.kind == ResourceKind::kClipScale;
    }
    const auto made = host_.find({access.kind, access.index});
    if (made != host_.end()) return made->second;
    return lasting ? std::optional(Content{Meaning::kValue}) : std::nullopt;
  }

  // Whether the op takes weights of a block as they are now: by fetching them or by using them.
  static std::optional<int32_t> TakenBlock(const Op& op) {
    if (const auto* fetch = std::get_if<FetchWeights>(&op.body)) return Index(fetch->block);
    if (const auto* forward = std::get_if<ForwardBlock>(&op.body)) return Index(forward->block);
    if (const auto* backward = std::get_if<BackwardBlock>(&op.body)) return Index(backward->block);
    return std::nullopt;
  }
  // Likewise, whether it changes them.
  static std::optional<int32_t> UpdatedBlock(const Op& op) {
    if (const auto* update = std::get_if<UpdateHost>(&op.body)) {
      return ChangesWeights(update->part) ? std::optional(Index(update->block)) : std::nullopt;
    }
    if (const auto* update = std::get_if<UpdateDevice>(&op.body)) return Index(update->block);
    return std::nullopt;
  }

  absl::Status CheckVersions(int32_t index, const Op& op) {
    if (const std::optional<int32_t> block = UpdatedBlock(op)) {
      if (program_.updates == Updates::kNone) {
        return Broken(absl::StrCat("update in a program without updates: [", Text(index), "]"));
      }
      if (!updated_.insert(*block).second) {
        return Broken(absl::StrCat("second update of a block in one step: [", Text(index), "]"));
      }
    } else if (const std::optional<int32_t> taken = TakenBlock(op)) {
      const bool fresh = updated_.contains(*taken);
      const auto [entry, first] = taken_fresh_.emplace(*taken, fresh);
      if (!first && entry->second != fresh) {
        return Broken(absl::StrCat("weights fetched or used before and after their update: [",
                                   Text(index), "]"));
      }
    }
    return absl::OkStatus();
  }

  // Moments follow the weights, with the same gradients.
  absl::Status CheckMoments(int32_t index, const Op& op) {
    if (const auto* update = std::get_if<UpdateHost>(&op.body)) {
      if (update->part == UpdatePart::kWeights) moments_due_.insert(Index(update->block));
      if (update->part != UpdatePart::kMoments || moments_due_.erase(Index(update->block)) == 1) {
        return absl::OkStatus();
      }
      return Broken(absl::StrCat("moments updated without their weights: [", Text(index), "]"));
    }
    if (const auto* update = std::get_if<UpdateDevice>(&op.body)) {
      if (!ChangesMoments(update->part)) moments_due_.insert(Index(update->block));
      return absl::OkStatus();
    }
    if (const auto* fetch = std::get_if<FetchMoments>(&op.body)) {
      if (!moments_due_.contains(Index(fetch->block))) return absl::OkStatus();
      return Broken(absl::StrCat("moments fetched before their update: [", Text(index), "]"));
    }
    const auto* gradients = std::get_if<StoreGradients>(&op.body);
    const auto* sums = std::get_if<StoreSums>(&op.body);
    const bool stores = (gradients != nullptr && gradients->host == kNoBuffer) || sums != nullptr;
    if (!stores || !moments_due_.contains(Index(sums ? sums->block : gradients->block))) {
      return absl::OkStatus();
    }
    return Broken(
        absl::StrCat("gradients written over those with which moments are still to be "
                     "updated: [",
                     Text(index), "]"));
  }

  void Leave(const Access& access) {
    if (access.mode == AccessMode::kRead) return;
    if (access.kind != ResourceKind::kBuffer) {
      host_[{access.kind, access.index}] = access.writes;
      return;
    }
    Content left = access.writes;
    // An op that sums does not say of how many terms.
    if (left.meaning == Meaning::kGradients && left.micro_batch == 0) {
      const bool adds = access.mode == AccessMode::kUpdate;
      left.micro_batch = adds ? buffers_[access.index]->micro_batch + 1 : 1;
    }
    for (int32_t other : tracker_.Overlapping(access.index)) buffers_[other].reset();
    buffers_[access.index] = left;
  }

  const StepProgram& program_;
  HazardTracker tracker_;
  OrderClock clock_;
  std::vector<std::optional<Content>> buffers_;
  std::map<std::pair<ResourceKind, int32_t>, Content> host_;  // made in this step
  std::set<int32_t> updated_;                                 // weights
  std::set<int32_t> moments_due_;                             // of blocks whose weights are updated
  std::map<int32_t, bool> taken_fresh_;
};

}  // namespace

absl::Status Verify(const StepProgram& program) {
  PENSTOCK_RETURN_IF_ERROR(CheckShape(program));
  Walker walker(program);
  for (size_t i = 0; i < program.ops.size(); ++i) {
    PENSTOCK_RETURN_IF_ERROR(walker.Step(static_cast<int32_t>(i)));
  }
  return walker.CheckLeft();
}

}  // namespace penstock
