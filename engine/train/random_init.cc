#include "engine/train/random_init.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "engine/memory/planes.h"

namespace penstock {
namespace {

constexpr int64_t kPieceElements = int64_t{1} << 16;  // a multiple of 4: whole Philox blocks
constexpr int kPhiloxRounds = 10;

using Counter = std::array<uint32_t, 4>;

// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3".
Counter Philox(Counter counter, uint64_t key) {
  uint32_t low_key = static_cast<uint32_t>(key), high_key = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ low_key, static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ high_key, static_cast<uint32_t>(a)};
    low_key += 0x9E3779B9;
    high_key += 0xBB67AE85;
  }
  return counter;
}

// In (0, 1), never its ends: the logarithm below is finite.
double Uniform(uint32_t bits) { return (bits + 0.5) * 0x1p-32; }

// Four standard normals, for elements 4 * block .. 4 * block + 3 of a parameter.
std::array<double, 4> Normals(uint64_t seed, uint32_t parameter, uint64_t block) {
  const Counter bits = Philox(
      {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), parameter, 0}, seed);
  std::array<double, 4> normals;
  for (int pair = 0; pair < 2; ++pair) {
    const double radius = std::sqrt(-2 * std::log(Uniform(bits[2 * pair])));
    const double angle = 2 * std::numbers::pi * Uniform(bits[2 * pair + 1]);
    normals[2 * pair] = radius * std::cos(angle);
    normals[2 * pair + 1] = radius * std::sin(angle);
  }
  return normals;
}

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

void Fill(const Piece& piece, uint64_t seed, double deviation, std::vector<float>& values) {
  const Rule rule = RuleOf(piece.parameter->role);
  if (rule == Rule::kZeros || rule == Rule::kOnes) {
    std::fill(values.begin(), values.end(), rule == Rule::kOnes ? 1.0f : 0.0f);
    return;
  }
  for (int64_t i = 0; i < piece.count; i += 4) {
    const auto normals = Normals(seed, piece.ordinal, static_cast<uint64_t>(piece.first + i) / 4);
    for (int64_t j = i; j < std::min(i + 4, piece.count); ++j) {
      values[j] = static_cast<float>(deviation * normals[j - i]);
    }
  }
}

}  // namespace

void InitializeWeights(const ModelSpec& spec, uint64_t seed, HostStore& store, ThreadPool& pool) {
  const double residual_scale = 1 / std::sqrt(2.0 * static_cast<double>(spec.num_layers));
  const std::vector<Piece> pieces = CutIntoPieces(store.layout());
  std::vector<std::vector<float>> windows(pool.size(), std::vector<float>(kPieceElements));
  pool.ParallelFor(static_cast<int64_t>(pieces.size()), [&](int64_t task, int worker) {
    const Piece& piece = pieces[task];
    std::vector<float>& values = windows[worker];
    const bool residual = RuleOf(piece.parameter->role) == Rule::kResidualNormal;
    Fill(piece, seed, spec.initializer_range * (residual ? residual_scale : 1), values);
    BlockStore& block = store.block(piece.block);
    const int64_t begin = piece.parameter->offset + piece.first;
    SplitPlanes(values.data(), piece.count, block.hi.data() + begin, block.lo.data() + begin);
  });
}

}  // namespace penstock
