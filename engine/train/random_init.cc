#include "engine/train/random_init.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/memory/planes.h"
#include "engine/train/normal_values.h"

namespace penstock {
namespace {

constexpr int64_t kPieceElements = int64_t{1} << 16;
static_assert(kPieceElements % kNormalGroup == 0);

enum class Rule : uint8_t { kZeros, kOnes, kNormal, kResidualNormal };

Rule RuleOf(Role role) {
  switch (role) {
    case Role::kInputNorm:
    case Role::kPostNorm:
    case Role::kFinalNorm:
    case Role::kQNorm:
    case Role::kKNorm:
      return Rule::kOnes;
    case Role::kQBias:
    case Role::kKBias:
    case Role::kVBias:
    case Role::kOBias:
    case Role::kGateBias:
    case Role::kUpBias:
    case Role::kDownBias:
      return Rule::kZeros;
    case Role::kOWeight:
    case Role::kDownWeight:
      return Rule::kResidualNormal;
    case Role::kEmbedding:
    case Role::kQWeight:
    case Role::kKWeight:
    case Role::kVWeight:
    case Role::kGateWeight:
    case Role::kUpWeight:
    case Role::kHeadWeight:
      return Rule::kNormal;
  }
  return Rule::kZeros;
}

struct Piece {
  BlockId block;
  const Parameter* parameter;
  uint32_t ordinal;  // of the parameter in layout order
  int64_t first;
  int64_t count;
};

std::vector<Piece> CutIntoPieces(const ModelLayout& layout) {
  std::vector<Piece> pieces;
  uint32_t ordinal = 0;
  for (const BlockLayout& block : layout.blocks) {
    for (const Parameter& parameter : block.parameters) {
      for (int64_t first = 0; first < parameter.size; first += kPieceElements) {
        pieces.push_back({block.block, &parameter, ordinal, first,
                          std::min(kPieceElements, parameter.size - first)});
      }
      ++ordinal;
    }
  }
  return pieces;
}

void Fill(const Piece& piece, NormalStream stream, double residual_scale, BlockStore& block) {
  const int64_t begin = piece.parameter->offset + piece.first;
  uint16_t* hi = block.hi.data() + begin;
  int16_t* lo = block.lo.data() + begin;
  const Rule rule = RuleOf(piece.parameter->role);
  if (rule == Rule::kZeros || rule == Rule::kOnes) {
    const SplitValue value = Split(rule == Rule::kOnes ? 1.0f : 0.0f);
    std::fill_n(hi, piece.count, value.hi);
    std::fill_n(lo, piece.count, value.lo);
    return;
  }
  if (rule == Rule::kResidualNormal) {
    stream.deviation = static_cast<float>(stream.deviation * residual_scale);
  }
  WriteNormalPlanes(stream, piece.first, piece.count, hi, lo, BestCpuIsa());
}

}  // namespace

void InitializeWeights(const ModelSpec& spec, uint64_t seed, HostStore& store, ThreadPool& pool) {
  const double residual_scale = 1 / std::sqrt(2.0 * static_cast<double>(spec.num_layers));
  const std::vector<Piece> pieces = CutIntoPieces(store.layout());
  pool.ParallelFor(static_cast<int64_t>(pieces.size()), [&](int64_t task, int /*worker*/) {
    const Piece& piece = pieces[task];
    const NormalStream stream{.seed = seed,
                              .stream = piece.ordinal,
                              .deviation = static_cast<float>(spec.initializer_range)};
    Fill(piece, stream, residual_scale, store.block(piece.block));
  });
}

}  // namespace penstock
