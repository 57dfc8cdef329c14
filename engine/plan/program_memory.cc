#include "engine/plan/program_memory.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/plan/activations.h"
#include "engine/plan/device_state.h"

namespace penstock {
namespace {

constexpr int64_t kBufferAlignment = 4096;
constexpr int64_t kTensorAlignment = 256;  // what kernels want
// Places on the device through which tensors saved on the host pass: one is computed with, one
// leaves or arrives, one is free for the next.
constexpr int32_t kPassingBuffers = 3;

// What a part's buffers are called, by where they are. Inputs always stay, so none is shared.
struct PartNames {
  std::string_view kept, shared, passing, host, in_sums;
};
// By SavedPart.
constexpr PartNames kPartNames[] = {
    {"x", {}, "passing_x", "host_x", "x_in_sums"},
    {"attention", "attention_shared", "passing_attention", "host_attention", "attention_in_sums"},
    {"mlp", "mlp_shared", "passing_mlp", "host_mlp", "mlp_in_sums"},
};

}  // namespace

ProgramMemory::ProgramMemory(const ModelSpec& spec, const ModelLayout& layout, const Policy& policy,
                             const ProgramShape& shape, StepProgram& program)
    : spec_(spec),
      layout_(layout),
      policy_(policy),
      shape_(shape),
      program_(program),
      blocks_(spec.num_blocks()),
      has_own_first_round_(policy.micro_batches_per_round > 0 &&
                           policy.micro_batches_in_first_round > 0),
      first_round_(policy.RoundSize(0, shape.micro_batches)) {}

int32_t ProgramMemory::Slot(int32_t micro_batch) const {
  if (micro_batch < first_round_) return micro_batch;
  return (micro_batch - first_round_) % policy_.micro_batches_per_round;
}

Saving ProgramMemory::SavingOf(int32_t block, int32_t micro_batch) const {
  return policy_.SavingOf(block - 1, InOwnFirstRound(micro_batch));
}

BufferId ProgramMemory::Allocate(std::string name, BufferClass buffer_class, int64_t bytes,
                                 Arena arena) {
  const BufferId id{static_cast<int32_t>(program_.buffers.size())};
  int64_t& end = arena == Arena::kHost ? host_end_ : end_;
  program_.buffers.push_back({std::move(name), buffer_class, end, bytes, arena});
  end += RoundUp(bytes, kBufferAlignment);
  return id;
}

BufferId ProgramMemory::AllocateOnce(const Key& key, BufferClass buffer_class, int64_t bytes,
                                     Arena arena) {
  const auto [entry, fresh] = by_key_.try_emplace(key, kNoBuffer);
  if (fresh) entry->second = Allocate(NameOf(key), buffer_class, bytes, arena);
  return entry->second;
}

std::string ProgramMemory::NameOf(const Key& key) {
  std::string name(key.first_round ? "first_" : "");
  name += key.what;
  if (key.index >= 0) absl::StrAppend(&name, key.index);
  if (key.slot >= 0) absl::StrAppend(&name, "[", key.slot, "]");
  return name;
}

std::string ProgramMemory::Name(int64_t block) const {
  if (block == 0) return "embedding";
  return IsLayer(block) ? absl::StrCat("layer", block) : "head";
}

void ProgramMemory::AllocateHeld() {
  for (int64_t block = 0; block < spec_.num_blocks(); ++block) {
    const BlockPlacement placement = policy_.PlacementOf(block);
    const int64_t size = layout_.blocks[block].size;
    if (!IsLayer(block) || placement.weights || placement.HasMaster()) {
      blocks_[block].weights =
          Allocate(Name(block), BufferClass::kWeights, size * shape_.element_bytes);
    }
    if (placement.HasMaster()) {
      blocks_[block].correction = Allocate(absl::StrCat("correction_", Name(block)),
                                           BufferClass::kState, DeviceCorrectionBytes(size));
    }
    if (placement.state) {
      blocks_[block].moments = Allocate(absl::StrCat("moments_", Name(block)), BufferClass::kState,
                                        DeviceMomentsBytes(size));
    }
  }
}

void ProgramMemory::AllocateHeldGradients() {
  for (int64_t block = 0; block < spec_.num_blocks(); ++block) {
    const BlockPlacement placement = policy_.PlacementOf(block);
    const int64_t size = layout_.blocks[block].size;
    // Without rounding the sums themselves wait for the update.
    const bool sums_wait = placement.HasMaster() && policy_.gradient_type == GradientType::kFloat32;
    if (placement.gradients || sums_wait) {
      blocks_[block].sums =
          Allocate(absl::StrCat("d_", Name(block)), BufferClass::kGradient, size * 4);
      blocks_[block].complete = blocks_[block].sums;
    } else if (placement.HasMaster()) {
      blocks_[block].complete =
          Allocate(absl::StrCat("rounded_", Name(block)), BufferClass::kGradient,
                   size * GradientBytesPerElement(policy_.gradient_type));
    }
  }
  AllocateVisitingMoments();
}

// The backward pass is through with the last block first. Among gradients its place is at their
// end; saved tensors are laid out for it, the last layer's first. The moments of the last block
// come first: the host has updated them before the others'.
void ProgramMemory::AllocateVisitingMoments() {
  const bool in_gradients = policy_.AllGradientsStay();
  int64_t next = end_;
  for (auto block = static_cast<int32_t>(spec_.num_blocks()) - 1; block >= 0; --block) {
    if (!policy_.PlacementOf(block).MomentsVisit()) continue;
    const int64_t bytes = DeviceMomentsBytes(layout_.blocks[block].size);
    if (in_gradients) next -= bytes;
    blocks_[block].moments = BufferId{static_cast<int32_t>(program_.buffers.size())};
    program_.buffers.push_back(
        {absl::StrCat("moments_", Name(block)), BufferClass::kState, next, bytes});
    visitors_.push_back(BlockId{block});
    if (!in_gradients) visitors_end_ = next += bytes;
  }
}

void ProgramMemory::AllocateSavedUnderMoments() {
  if (visitors_end_ == 0) return;
  saved_under_moments_.resize(spec_.num_blocks());
  for (auto layer = static_cast<int32_t>(spec_.num_layers); layer >= 1; --layer) {
    const int64_t begin = end_;
    const Saving saving = SavingOf(layer, 0);
    for (int32_t mb = 0; mb < slots_in_flight() && saving.place == SavePlace::kDevice; ++mb) {
      Input(layer, mb, Pass::kForward);
      if (saving.level != SaveLevel::kInput) Attention(layer, mb, Pass::kForward);
      if (saving.level == SaveLevel::kAll) Mlp(layer, mb, Pass::kForward);
    }
    saved_under_moments_[layer] = {begin, end_};
  }
  end_ = std::max(end_, RoundUp(visitors_end_, kBufferAlignment));
}

BlockId ProgramMemory::MomentsComeAfter(BlockId block) const {
  const Buffer& moments = program_.buffer(blocks_[Index(block)].moments);
  const auto is_under = [&](const Range& range) {
    return range.begin < moments.offset + moments.bytes && moments.offset < range.end;
  };
  for (int32_t layer = 1; layer <= spec_.num_layers; ++layer) {
    const Buffer& sums = program_.buffer(blocks_[layer].sums);
    const Range range = visitors_end_ > 0 ? saved_under_moments_[layer]
                                          : Range{sums.offset, sums.offset + sums.bytes};
    if (is_under(range)) return BlockId{layer};
  }
  return BlockId{static_cast<int32_t>(spec_.num_layers) + 1};
}

absl::Status ProgramMemory::CheckVisitingMoments() const {
  int64_t first = INT64_MAX, wait_until = 0;
  for (int64_t block = 0; block < spec_.num_blocks(); ++block) {
    const BlockBuffers& buffers = blocks_[block];
    if (policy_.PlacementOf(block).MomentsVisit() && buffers.moments != kNoBuffer) {
      first = std::min(first, program_.buffer(buffers.moments).offset);
    }
    if (policy_.PlacementOf(block).HasMaster() && buffers.complete != kNoBuffer) {
      const Buffer& gradients = program_.buffer(buffers.complete);
      wait_until = std::max(wait_until, gradients.offset + gradients.bytes);
    }
  }
  if (first >= wait_until) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, reason::kInternal,
               absl::StrCat("policy: the gradients of the blocks above those whose master weights "
                            "are on the device have ",
                            FormatBytes(wait_until - first), " too little room for their moments"));
}

void ProgramMemory::AllocateForward() {
  int64_t streamed = 0;
  for (int64_t block = 1; block <= spec_.num_layers; ++block) {
    streamed += blocks_[block].weights == kNoBuffer ? 1 : 0;
  }
  const int64_t slot_bytes = layout_.max_decoder_block_size * shape_.element_bytes;
  for (int64_t slot = 0; slot < std::min<int64_t>(policy_.decoder_slots, streamed); ++slot) {
    slots_.push_back(Allocate(absl::StrCat("slot", slot), BufferClass::kWeights, slot_bytes));
  }
  const int64_t tokens = shape_.tokens_per_micro_batch, element = shape_.element_bytes;
  const int64_t mlp_rows = MlpChunkRows(policy_.mlp_chunk_rows, tokens);
  const int64_t head_rows = std::min(policy_.head_chunk_rows, tokens);
  scratch_ = Allocate(
      "scratch", BufferClass::kScratch,
      std::max(
          MakeBlockScratch(spec_, tokens, mlp_rows, element, shape_.kernel_scratch_bytes).bytes,
          MakeHeadScratch(spec_, head_rows, element).bytes));
}

void ProgramMemory::AllocateBackward() {
  const int64_t embedding_bytes = layout_.blocks.front().size * 4;
  const int64_t head_bytes = layout_.blocks.back().size * 4;
  // A head of its own is through with its sums before the embedding begins with its.
  const bool share = !spec_.tied() && first_round_ == shape_.micro_batches &&
                     blocks_.front().sums == kNoBuffer && blocks_.back().sums == kNoBuffer;
  if (share) {
    blocks_.front().sums = blocks_.back().sums = Allocate(
        "d_head_and_embedding", BufferClass::kGradient, std::max(embedding_bytes, head_bytes));
  }
  if (blocks_.back().sums == kNoBuffer) {
    blocks_.back().sums = Allocate("d_head", BufferClass::kGradient, head_bytes);
  }
  if (blocks_.front().sums == kNoBuffer) {
    blocks_.front().sums = Allocate("d_embedding", BufferClass::kGradient, embedding_bytes);
  }
  for (int64_t block = 1; block <= spec_.num_layers; ++block) {
    if (blocks_[block].sums != kNoBuffer) continue;
    // Two, so that one leaves for the host while the next layer's is summed.
    blocks_[block].sums = AllocateOnce({"d_layer_slot", static_cast<int32_t>(block % 2)},
                                       BufferClass::kGradient, layout_.max_decoder_block_size * 4);
  }
  for (BlockBuffers& buffers : blocks_) {
    if (buffers.complete == kNoBuffer) buffers.complete = buffers.sums;
  }
  for (int32_t mb = 0; mb < slots_in_flight(); ++mb) {
    d_.push_back(Allocate(absl::StrCat("d[", mb, "]"), BufferClass::kActivation,
                          PartBytes(SavedPart::kInput, SaveLevel::kAll)));
  }
}

bool ProgramMemory::SavedOnHost(int32_t block, int32_t micro_batch) const {
  return IsLayer(block) && SavingOf(block, micro_batch).place == SavePlace::kHost;
}

int64_t ProgramMemory::PartBytes(SavedPart part, SaveLevel level) const {
  const int64_t tokens = shape_.tokens_per_micro_batch, element = shape_.element_bytes;
  switch (part) {
    case SavedPart::kInput:
      return tokens * spec_.hidden_size * element;
    case SavedPart::kAttention:
      return MakeAttentionTensors(spec_, tokens, element).bytes;
    case SavedPart::kMlp: {
      const bool all_rows = level == SaveLevel::kAll;
      const int64_t rows = all_rows ? tokens : MlpChunkRows(policy_.mlp_chunk_rows, tokens);
      return MakeMlpTensors(spec_, rows, element).bytes;
    }
  }
  return 0;
}

BufferId ProgramMemory::InSums(SavedPart part, int32_t block, int32_t micro_batch) {
  if (!InOwnFirstRound(micro_batch) || block < 2 || !IsLayer(block)) return kNoBuffer;
  // Other layers are summed in the same place.
  if (!policy_.PlacementOf(block - 1).gradients) return kNoBuffer;
  const Buffer& sums = program_.buffer(blocks_[block - 1].sums);
  const std::optional<int64_t> offset = OffsetInSums(part, block, micro_batch, sums.bytes);
  if (!offset) return kNoBuffer;
  const Key key = {kPartNames[static_cast<int>(part)].in_sums, block, micro_batch};
  const auto [entry, fresh] = by_key_.try_emplace(key, kNoBuffer);
  if (fresh) {
    entry->second = BufferId{static_cast<int32_t>(program_.buffers.size())};
    program_.buffers.push_back({NameOf(key), BufferClass::kSaved, sums.offset + *offset,
                                PartBytes(part, SavingOf(block, micro_batch).level)});
  }
  return entry->second;
}

std::optional<int64_t> ProgramMemory::OffsetInSums(SavedPart part, int32_t block,
                                                   int32_t micro_batch, int64_t room) const {
  const SaveLevel level = SavingOf(block, micro_batch).level;
  int64_t end = 0;
  for (int32_t mb = first_round_ - 1; mb >= 0; --mb) {
    for (SavedPart each : {SavedPart::kInput, SavedPart::kAttention, SavedPart::kMlp}) {
      const bool saved = each == SavedPart::kInput || level == SaveLevel::kAll ||
                         (each == SavedPart::kAttention && level == SaveLevel::kAttention);
      if (!saved) continue;
      const int64_t bytes = RoundUp(PartBytes(each, level), kTensorAlignment);
      const bool fits = end + bytes <= room;
      if (mb == micro_batch && each == part) return fits ? std::optional(end) : std::nullopt;
      if (fits) end += bytes;
    }
  }
  return std::nullopt;
}

BufferId ProgramMemory::AllocateSaved(std::string_view what, int32_t block, int32_t micro_batch,
                                      BufferClass buffer_class, int64_t bytes, Arena arena) {
  const bool first = InOwnFirstRound(micro_batch);
  const Key key = {what, block, Slot(micro_batch), first};
  if (!has_own_first_round_) return AllocateOnce(key, buffer_class, bytes, arena);
  const auto [entry, fresh] = by_key_.try_emplace(key, kNoBuffer);
  if (fresh) {
    entry->second = BufferId{static_cast<int32_t>(program_.buffers.size())};
    const Region region = first ? Region::kFirstRound : Region::kOtherRounds;
    int64_t& end = saved_end_[static_cast<int>(arena)][static_cast<int>(region)];
    program_.buffers.push_back({NameOf(key), buffer_class, end, bytes, arena});
    end += RoundUp(bytes, kBufferAlignment);
    saved_.push_back(entry->second);
  }
  return entry->second;
}

BufferId ProgramMemory::Input(int32_t block, int32_t micro_batch, Pass pass) {
  const int64_t bytes = PartBytes(SavedPart::kInput, SaveLevel::kAll);
  // What does not stay passes through a few buffers that take turns.
  if (pass == Pass::kEvaluation) {
    return AllocateOnce({"x", block % 2, Slot(micro_batch)}, BufferClass::kActivation, bytes);
  }
  if (SavedOnHost(block, micro_batch)) {
    return AllocateOnce({"passing_x", block % kPassingBuffers, Slot(micro_batch)},
                        BufferClass::kActivation, bytes);
  }
  if (const BufferId id = InSums(SavedPart::kInput, block, micro_batch); id != kNoBuffer) return id;
  return AllocateSaved("x", block, micro_batch, BufferClass::kActivation, bytes, Arena::kDevice);
}

// Backward visits the blocks the other way round, and the micro-batches of each as forward does.
int32_t ProgramMemory::PassingPlace(int32_t block, int32_t micro_batch, Pass pass) const {
  const auto last_layer = static_cast<int32_t>(spec_.num_layers);
  const int32_t blocks_before = pass == Pass::kBackward ? last_layer - block : block;
  return (blocks_before * slots_in_flight() + Slot(micro_batch)) % kPassingBuffers;
}

BufferId ProgramMemory::Tensors(SavedPart part, int32_t block, int32_t micro_batch, Pass pass,
                                SaveLevel kept_at) {
  const PartNames& names = kPartNames[static_cast<int>(part)];
  const SaveLevel level =
      pass == Pass::kEvaluation ? SaveLevel::kInput : SavingOf(block, micro_batch).level;
  if (level > kept_at) {
    return AllocateOnce({names.shared}, BufferClass::kScratch, PartBytes(part, SaveLevel::kInput));
  }
  const int64_t bytes = PartBytes(part, level);
  if (SavedOnHost(block, micro_batch)) {
    return AllocateOnce({names.passing, PassingPlace(block, micro_batch, pass)},
                        BufferClass::kSaved, bytes);
  }
  if (const BufferId id = InSums(part, block, micro_batch); id != kNoBuffer) return id;
  return AllocateSaved(names.kept, block, micro_batch, BufferClass::kSaved, bytes, Arena::kDevice);
}

BufferId ProgramMemory::Attention(int32_t block, int32_t micro_batch, Pass pass) {
  return Tensors(SavedPart::kAttention, block, micro_batch, pass, SaveLevel::kAttention);
}

BufferId ProgramMemory::Mlp(int32_t block, int32_t micro_batch, Pass pass) {
  return Tensors(SavedPart::kMlp, block, micro_batch, pass, SaveLevel::kAll);
}

BufferId ProgramMemory::OnHost(SavedPart part, int32_t block, int32_t micro_batch) {
  return AllocateSaved(kPartNames[static_cast<int>(part)].host, block, micro_batch,
                       BufferClass::kSaved, PartBytes(part, SavingOf(block, micro_batch).level),
                       Arena::kHost);
}

// Layers take turns at two places. Head and embedding, which can be larger than both, come before
// and after them: their place is the same memory.
BufferId ProgramMemory::PassingGradients(BlockId block) {
  const int64_t element = GradientBytesPerElement(policy_.gradient_type);
  const auto place = [&](int64_t size) { return RoundUp(size * element, kBufferAlignment); };
  const int64_t layer_place = place(layout_.max_decoder_block_size);
  if (passing_gradients_ < 0) {
    const int64_t ends = std::max(layout_.blocks.front().size, layout_.blocks.back().size);
    passing_gradients_ = host_end_;
    host_end_ += std::max(2 * layer_place, place(ends));
  }
  const int64_t index = Index(block);
  const Key key = {"passing_d_block", Index(block)};
  const auto [entry, fresh] = by_key_.try_emplace(key, kNoBuffer);
  if (fresh) {
    entry->second = BufferId{static_cast<int32_t>(program_.buffers.size())};
    const int64_t offset = passing_gradients_ + (IsLayer(index) ? index % 2 * layer_place : 0);
    program_.buffers.push_back({NameOf(key), BufferClass::kGradient, offset,
                                layout_.blocks[index].size * element, Arena::kHost});
  }
  return entry->second;
}

absl::Status ProgramMemory::Finish() {
  PENSTOCK_RETURN_IF_ERROR(CheckVisitingMoments());
  for (BufferId id : saved_) {
    Buffer& buffer = program_.buffers[Index(id)];
    buffer.offset += buffer.arena == Arena::kHost ? host_end_ : end_;
  }
  const auto larger = [&](Arena arena) {
    const auto& ends = saved_end_[static_cast<int>(arena)];
    return std::max(ends[0], ends[1]);
  };
  end_ = std::max(end_ + larger(Arena::kDevice), RoundUp(visitors_end_, kBufferAlignment));
  host_end_ += larger(Arena::kHost);
  program_.arena_bytes = shape_.arena_budget_bytes > 0 ? shape_.arena_budget_bytes : end_;
  program_.host_arena_bytes = host_end_;
  return end_ > program_.arena_bytes ? OverBudget() : absl::OkStatus();
}

absl::Status ProgramMemory::OverBudget() const {
  std::string parts;
  for (const auto& [buffer_class, bytes] : BytesByClass(program_, Arena::kDevice)) {
    absl::StrAppend(&parts, parts.empty() ? "" : ", ", BufferClassName(buffer_class), " ",
                    FormatBytes(bytes));
  }
  return Error(
      absl::StatusCode::kResourceExhausted, reason::kDeviceMemoryInsufficient,
      absl::StrCat("a step needs ", FormatBytes(end_), " of device memory (", parts, "), ",
                   FormatBytes(program_.arena_bytes),
                   " may be used; lower batch.micro_batch_tokens or save less "
                   "(batch.activation_checkpointing)"),
      {{"needed_bytes", absl::StrCat(end_)}, {"usable_bytes", absl::StrCat(program_.arena_bytes)}});
}

}  // namespace penstock
