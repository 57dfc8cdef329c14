// By groups of kMomentBlock elements, whose fp32 moments stay in the first cache.
#include <algorithm>

#include "engine/base/status.h"
#include "engine/kernels/adamw_scalars.h"
#include "engine/kernels/adamw_small_moments.h"
#include "engine/kernels/adamw_update.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/moment_codes.h"
#include "engine/kernels/parallel.h"

namespace penstock {
namespace {

using moment_codes::GroupKey;
using moment_codes::Mix;

// Elements a task: whole groups, as no two threads may write one scale.
constexpr int64_t kTask = 16 * 1024;
static_assert(kTask % kMomentBlock == 0);

uint64_t KeyOf(const RoundingStream& stream) {
  uint64_t key = Mix(stream.seed);
  key = Mix(key ^ static_cast<uint64_t>(stream.update));
  return Mix(key ^ static_cast<uint64_t>(stream.block));
}

// Moves the moments of a group between the arrays and fp32.
class GroupCodec {
 public:
  GroupCodec(const AdamWSmallMomentsArgs& args, CpuIsa isa)
      : args_(args), isa_(isa), key_(KeyOf(args.stream)) {}

  void Widen(int64_t at, int64_t count, float* m, float* v) const {
    if (args_.type == MomentType::kBfloat16) {
      RunAsIsa<moment_codes::DecodeBf16>(isa_, Halves(args_.m) + at, count, m);
      RunAsIsa<moment_codes::DecodeBf16>(isa_, Halves(args_.v) + at, count, v);
      return;
    }
    const int64_t group = at / kMomentBlock;
    RunAsIsa<moment_codes::DecodeInt8>(isa_, Codes(args_.m) + at, args_.m_scales[group],
                                       Codes(args_.v) + at, args_.v_scales[group], count, m, v);
  }

  void Round(int64_t at, int64_t count, const float* m, const float* v) const {
    const uint64_t key = GroupKey(key_, args_.stream.element + at);
    if (args_.type == MomentType::kBfloat16) {
      RunAsIsa<moment_codes::EncodeBf16>(isa_, m, v, count, key, Halves(args_.m) + at,
                                         Halves(args_.v) + at);
      return;
    }
    const int64_t group = at / kMomentBlock;
    RunAsIsa<moment_codes::EncodeInt8>(isa_, m, v, count, key, Codes(args_.m) + at,
                                       args_.m_scales + group, Codes(args_.v) + at,
                                       args_.v_scales + group);
  }

 private:
  static uint16_t* Halves(std::byte* values) { return reinterpret_cast<uint16_t*>(values); }
  static uint8_t* Codes(std::byte* values) { return reinterpret_cast<uint8_t*>(values); }

  const AdamWSmallMomentsArgs& args_;
  const CpuIsa isa_;
  const uint64_t key_;
};

template <typename Gradient>
void UpdateAll(const cpu::Context& context, const AdamWSmallMomentsArgs& args,
               const Gradient* gradient, CpuIsa isa) {
  const adamw::Scalars scalars = adamw::ToScalars(args.update);
  const GroupCodec codec(args, isa);
  ParallelBlocks(context, args.update.count, kTask, [&](int64_t begin, int64_t end) {
    alignas(64) float m[kMomentBlock], v[kMomentBlock];
    for (int64_t at = begin; at < end; at += kMomentBlock) {
      const int64_t count = std::min(kMomentBlock, end - at);
      codec.Widen(at, count, m, v);
      adamw::UpdateRange<UpdatePart::kAll, Gradient>(
          isa, scalars, {args.update.hi + at, args.update.lo + at, m, v, gradient + at, count});
      codec.Round(at, count, m, v);
    }
  });
}

absl::Status CheckContract(const AdamWSmallMomentsArgs& args) {
  AdamWArgs update = args.update;
  update.m = reinterpret_cast<float*>(args.m);
  update.v = reinterpret_cast<float*>(args.v);
  PENSTOCK_RETURN_IF_ERROR(adamw::CheckContract(update));
  PENSTOCK_RETURN_IF_ERROR(Require(update.part == UpdatePart::kAll, "AdamWSmallMoments",
                                   "weights and moments at once",
                                   {{"part", static_cast<int64_t>(update.part)}}));
  const bool scales = args.m_scales != nullptr && args.v_scales != nullptr;
  return Require(args.type == MomentType::kBfloat16 ||
                     (args.type == MomentType::kInt8Blocks && (scales || args.update.count == 0)),
                 "AdamWSmallMoments", "a smaller type, and scales for kInt8Blocks",
                 {{"type", static_cast<int64_t>(args.type)}});
}

}  // namespace

absl::Status AdamWSmallMoments(const cpu::Context& context, const AdamWSmallMomentsArgs& args) {
  return AdamWSmallMoments(context, args, BestCpuIsa());
}

absl::Status AdamWSmallMoments(const cpu::Context& context, const AdamWSmallMomentsArgs& args,
                               CpuIsa isa) {
  PENSTOCK_RETURN_IF_ERROR(CheckContract(args));
  PENSTOCK_RETURN_IF_ERROR(Require(isa <= BestCpuIsa(), "AdamWSmallMoments",
                                   "an instruction set it has",
                                   {{"isa", static_cast<int64_t>(isa)}}));
  if (args.update.gradient != nullptr) {
    UpdateAll(context, args, args.update.gradient, isa);
  } else {
    UpdateAll(context, args, args.update.gradient_bf16, isa);
  }
  return absl::OkStatus();
}

}  // namespace penstock
