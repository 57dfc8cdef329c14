#include "engine/kernels/adamw_small_moments.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/memory/planes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/kernels/adamw_testing.h"
#include "tests/engine/kernels/parity.h"

namespace penstock {
namespace {

using reference::Doubles;
using ::testing::HasSubstr;

constexpr MomentType kSmallTypes[] = {MomentType::kBfloat16, MomentType::kInt8Blocks};

struct Hyper {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
};
// Moments that are the gradient and its square.
constexpr Hyper kNoMemory = {.learning_rate = 0, .beta1 = 0, .beta2 = 0};

AdamWArgs UpdateArgs(const Hyper& hyper, int t) {
  return {.hi = nullptr,
          .lo = nullptr,
          .m = nullptr,
          .v = nullptr,
          .count = 0,
          .learning_rate = hyper.learning_rate,
          .beta1 = hyper.beta1,
          .beta2 = hyper.beta2,
          .epsilon = hyper.epsilon,
          .weight_decay = hyper.weight_decay,
          .gradient_scale = 1,
          .bias_correction1 = 1 - std::pow(hyper.beta1, t),
          .bias_correction2 = 1 - std::pow(hyper.beta2, t)};
}

// Of 8 bits, as the contract has it, without a bit of the code under test.
double CodeValue(uint32_t q, float scale) {
  return q == 0 ? 0 : scale * std::exp2(q >> 3) * (1 + (q & 7) / 8.0);
}

// Weights and moments, each array so many elements after its memory's begin.
class State {
 public:
  State(MomentType type, const Floats& weights, int64_t offset = 0)
      : type_(type),
        count_(weights.size()),
        offset_(offset),
        hi_(count_ + offset),
        lo_(count_ + offset),
        m_((count_ + offset) * MomentElementBytes(type)),
        v_(m_.size()),
        m_scales_(MomentBlocks(count_)),
        v_scales_(MomentBlocks(count_)) {
    SplitPlanes(weights.data(), count_, hi_.data() + offset, lo_.data() + offset);
  }

  template <typename Gradient>
  void Update(const cpu::Context& context, const Hyper& hyper, int t,
              const std::vector<Gradient>& gradient, CpuIsa isa = BestCpuIsa()) {
    UpdatePart(context, hyper, t, gradient, isa, 0, count_);
  }

  // Elements [begin, end) alone; begin is the first of a block of moments.
  template <typename Gradient>
  void UpdatePart(const cpu::Context& context, const Hyper& hyper, int t,
                  const std::vector<Gradient>& gradient, CpuIsa isa, int64_t begin, int64_t end) {
    AdamWSmallMomentsArgs args = Args(hyper, t, begin, end);
    if constexpr (std::is_same_v<Gradient, bf16>) {
      args.update.gradient_bf16 = gradient.data() + begin;
    } else {
      args.update.gradient = gradient.data() + begin;
    }
    const absl::Status status = AdamWSmallMoments(context, args, isa);
    ASSERT_TRUE(status.ok()) << status;
  }

  AdamWSmallMomentsArgs Args(const Hyper& hyper, int t, int64_t begin, int64_t end) {
    AdamWSmallMomentsArgs args{.update = UpdateArgs(hyper, t),
                               .type = type_,
                               .m = m_.data() + (offset_ + begin) * MomentElementBytes(type_),
                               .v = v_.data() + (offset_ + begin) * MomentElementBytes(type_),
                               .m_scales = m_scales_.data() + begin / kMomentBlock,
                               .v_scales = v_scales_.data() + begin / kMomentBlock,
                               .stream = {.seed = 7, .update = t, .block = 3, .element = begin}};
    args.update.hi = hi_.data() + offset_ + begin;
    args.update.lo = lo_.data() + offset_ + begin;
    args.update.count = end - begin;
    return args;
  }

  Floats weights() const {
    Floats w(count_);
    JoinPlanes(hi_.data() + offset_, lo_.data() + offset_, count_, w.data());
    return w;
  }
  double m(int64_t i) const { return Value(m_, m_scales_, i, /*is_signed=*/true); }
  double v(int64_t i) const { return Value(v_, v_scales_, i, /*is_signed=*/false); }
  float v_scale(int64_t i) const { return v_scales_[i / kMomentBlock]; }

  bool SameBits(const State& other) const {
    const auto same = [](const auto& a, int64_t a_at, const auto& b, int64_t b_at, int64_t bytes) {
      return std::memcmp(reinterpret_cast<const char*>(a.data()) + a_at,
                         reinterpret_cast<const char*>(b.data()) + b_at, bytes) == 0;
    };
    const int64_t width = MomentElementBytes(type_);
    return same(hi_, 2 * offset_, other.hi_, 2 * other.offset_, 2 * count_) &&
           same(lo_, 2 * offset_, other.lo_, 2 * other.offset_, 2 * count_) &&
           same(m_, width * offset_, other.m_, width * other.offset_, width * count_) &&
           same(v_, width * offset_, other.v_, width * other.offset_, width * count_) &&
           m_scales_ == other.m_scales_ && v_scales_ == other.v_scales_;
  }

 private:
  double Value(const std::vector<std::byte>& values, const Floats& scales, int64_t i,
               bool is_signed) const {
    if (type_ == MomentType::kBfloat16) {
      bf16 value;
      std::memcpy(&value, values.data() + 2 * (offset_ + i), 2);
      return ToFloat(value);
    }
    const auto code = std::to_integer<uint32_t>(values[offset_ + i]);
    const float scale = scales[i / kMomentBlock];
    if (!is_signed) return CodeValue(code, scale);
    return CodeValue(code & 127, scale) * (code & 128 ? -1 : 1);
  }

  MomentType type_;
  int64_t count_, offset_;
  std::vector<uint16_t> hi_;
  std::vector<int16_t> lo_;
  std::vector<std::byte> m_, v_;
  Floats m_scales_, v_scales_;
};

// Gradients of every magnitude that a block may have, denormals included.
Floats ManyMagnitudes(int64_t count, int seed) {
  Floats values = Random(count, seed);
  for (int64_t i = 0; i < count; ++i) values[i] *= std::exp2(static_cast<float>(-(i * 7 % 60)));
  for (int64_t i = 0; i < count; i += 100) values[i] = i % 200 == 0 ? 0.0f : -1e-42f;
  return values;
}

TEST(AdamWSmallMomentsTest, InstructionSetsThreadsAndAlignmentsGiveTheSameBits) {
  ThreadPool one(1), three(3);
  for (const MomentType type : kSmallTypes) {
    for (const int64_t count : {1, 15, 255, 256, 257, 16384, 50021}) {
      const Floats weights = Random(count, 1, 0.02f);
      State expected(type, weights);
      for (int t = 1; t <= 3; ++t) {
        expected.Update({&one}, {}, t, Widened(Rounded(ManyMagnitudes(count, 10 + t))),
                        CpuIsa::kPortable);
      }
      for (const CpuIsa isa : Isas()) {
        State floats(type, weights, 3), halves(type, weights);
        for (int t = 1; t <= 3; ++t) {
          const std::vector<bf16> gradient = Rounded(ManyMagnitudes(count, 10 + t));
          floats.Update({&three}, {}, t, Widened(gradient), isa);
          halves.Update({&three}, {}, t, gradient, isa);
        }
        EXPECT_TRUE(floats.SameBits(expected) && halves.SameBits(expected))
            << MomentTypeName(type) << ", isa " << static_cast<int>(isa) << ", count " << count;
      }
    }
  }
}

TEST(AdamWSmallMomentsTest, PartsInAnyOrderGiveTheBitsOfTheWhole) {
  constexpr int64_t kCount = 40000;
  ThreadPool pool(2);
  for (const MomentType type : kSmallTypes) {
    const Floats weights = Random(kCount, 1, 0.02f), gradient = Random(kCount, 2);
    State whole(type, weights), parts(type, weights);
    whole.Update({&pool}, {}, 1, gradient);
    for (const int64_t begin : {20480, 256, 0}) {
      const int64_t end = begin == 20480 ? kCount : begin == 256 ? 20480 : 256;
      parts.UpdatePart({&pool}, {}, 1, gradient, BestCpuIsa(), begin, end);
    }
    EXPECT_TRUE(parts.SameBits(whole));
  }
}

// Only what is kept is rounded: while the kept moments are 0, weights are those of fp32 moments.
TEST(AdamWSmallMomentsTest, TheUpdateItselfIsThatOfFloat32) {
  constexpr int64_t kCount = 1000;
  ThreadPool pool(1);
  const Floats weights = Random(kCount, 1, 0.02f), gradient = Random(kCount, 2);
  Floats m(kCount), v(kCount), expected(kCount);
  std::vector<uint16_t> hi(kCount);
  std::vector<int16_t> lo(kCount);
  SplitPlanes(weights.data(), kCount, hi.data(), lo.data());
  AdamWArgs args = UpdateArgs({}, 1);
  args.hi = hi.data(), args.lo = lo.data(), args.m = m.data(), args.v = v.data();
  args.gradient = gradient.data(), args.count = kCount;
  ASSERT_TRUE(AdamW(cpu::Context{&pool}, args).ok());
  JoinPlanes(hi.data(), lo.data(), kCount, expected.data());
  for (const MomentType type : kSmallTypes) {
    State state(type, weights);
    state.Update({&pool}, {}, 1, gradient);
    EXPECT_EQ(state.weights(), expected);
  }
}

// Between the codes beside x.
double StepAt(MomentType type, double x, double least) {
  if (type == MomentType::kInt8Blocks && std::abs(x) < least) return least;
  const int mantissa = type == MomentType::kBfloat16 ? 7 : 3;
  return std::exp2(std::floor(std::log2(std::abs(x))) - mantissa);
}

// Each value is one of its two neighbours, and their mean is the value: of each element to five
// standard errors, and of all together, which shows a bias of a ten thousandth of a step.
TEST(AdamWSmallMomentsTest, RoundingIsUnbiased) {
  constexpr int64_t kCount = 512;
  constexpr int kUpdates = 4000;
  ThreadPool pool(2);
  for (const MomentType type : kSmallTypes) {
    // m down to below its smallest code, v to just above.
    Floats gradient = Random(kCount, 5);
    for (int64_t i = 0; i < kCount; ++i) {
      gradient[i] = std::clamp(gradient[i], -0.9f, 0.9f) * std::exp2(-static_cast<float>(i % 17));
      gradient[i] = std::copysign(std::max(std::abs(gradient[i]), 0x1.4p-15f), gradient[i]);
    }
    gradient[0] = 0.9f, gradient[256] = -0.9f;  // the largest of their blocks
    const double least = 0x1p-16 * 1.125;
    Doubles m(kCount), v(kCount);
    State state(type, Floats(kCount, 1.0f));
    for (int t = 1; t <= kUpdates; ++t) {
      state.Update({&pool}, kNoMemory, t, gradient);
      for (int64_t i = 0; i < kCount; ++i) {
        const double g = gradient[i], square = gradient[i] * gradient[i];
        m[i] += (state.m(i) - g) / StepAt(type, g, least);
        v[i] += (state.v(i) - square) / StepAt(type, square, 0);
        ASSERT_LT(std::abs(state.m(i) - g), StepAt(type, g, least)) << g;
        ASSERT_LT(std::abs(state.v(i) - square), StepAt(type, square, 0)) << square;
      }
    }
    // A value between two codes is off by half a step at most, root mean square.
    const double standard_error = 0.5 / std::sqrt(kUpdates);
    double m_bias = 0, v_bias = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      EXPECT_LT(std::abs(m[i] / kUpdates), 5 * standard_error) << gradient[i];
      EXPECT_LT(std::abs(v[i] / kUpdates), 5 * standard_error) << gradient[i];
      m_bias += m[i] / kUpdates / kCount;
      v_bias += v[i] / kUpdates / kCount;
    }
    EXPECT_LT(std::abs(m_bias), 5 * standard_error / std::sqrt(kCount)) << MomentTypeName(type);
    EXPECT_LT(std::abs(v_bias), 5 * standard_error / std::sqrt(kCount)) << MomentTypeName(type);
  }
}

// Of the elements, the updates, and the two moments.
TEST(AdamWSmallMomentsTest, RoundingIsIndependent) {
  constexpr int64_t kCount = 512;
  constexpr int kUpdates = 400;
  ThreadPool pool(1);
  // m is half way between two codes, v is nearer to the lower one.
  const float gradient = 1.1875f, step = 1.0f / 8;
  const double square = gradient * gradient, chance = (square - 1.375) / step;
  State state(MomentType::kInt8Blocks, Floats(kCount, 1.0f));
  std::vector<Doubles> m(kUpdates, Doubles(kCount)), v = m;
  for (int t = 0; t < kUpdates; ++t) {
    state.Update({&pool}, kNoMemory, t + 1, Floats(kCount, gradient));
    for (int64_t i = 0; i < kCount; ++i) {
      m[t][i] = (state.m(i) - gradient) / (step / 2);  // 1 or -1
      v[t][i] = (state.v(i) > square ? 1 : 0) - chance;
    }
  }
  double elements = 0, updates = 0, blocks = 0, moments = 0, v_mean = 0;
  for (int t = 0; t + 1 < kUpdates; ++t) {
    for (int64_t i = 0; i + kMomentBlock < kCount; ++i) {
      elements += m[t][i] * m[t][i + 1];
      updates += m[t][i] * m[t + 1][i];
      blocks += m[t][i] * m[t][i + kMomentBlock];
      moments += m[t][i] * v[t][i];
      v_mean += v[t][i];
    }
  }
  const double pairs = (kUpdates - 1.0) * (kCount - kMomentBlock);
  for (const double sum : {elements, updates, blocks, moments, v_mean}) {
    EXPECT_LT(std::abs(sum / pairs), 5 / std::sqrt(pairs));
  }
}

struct Errors {
  double m = 0, v = 0, w = 0;  // relative, root mean square; w of the way that weights went
};

// Against AdamW as the paper has it, in f64: gradients with a constant part and noise, magnitudes
// over two powers of ten in a block. A code's error stays for the 1 / (1 - beta) steps that a
// moment remembers, so that kept moments are further off than a rounding.
Errors ErrorsAgainstFloat64(MomentType type, const Hyper& hyper, int steps) {
  constexpr int64_t kCount = 4096;
  ThreadPool pool(2);
  const Floats weights = Random(kCount, 1, 0.2f), signal = Random(kCount, 2);
  State state(type, weights);
  Doubles w(weights.begin(), weights.end()), m(kCount), v(kCount);
  for (int t = 1; t <= steps; ++t) {
    Floats gradient = Random(kCount, 100 + t);
    for (int64_t i = 0; i < kCount; ++i) {
      gradient[i] = (0.5f * signal[i] + gradient[i]) * std::exp2(-static_cast<float>(i % 8));
      const double g = gradient[i];
      w[i] -= hyper.learning_rate * hyper.weight_decay * w[i];
      m[i] = hyper.beta1 * m[i] + (1 - hyper.beta1) * g;
      v[i] = hyper.beta2 * v[i] + (1 - hyper.beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(hyper.beta1, t));
      const double v_hat = v[i] / (1 - std::pow(hyper.beta2, t));
      w[i] -= hyper.learning_rate * m_hat / (std::sqrt(v_hat) + hyper.epsilon);
    }
    state.Update({&pool}, hyper, t, gradient);
  }
  Errors errors;
  double way = 0, m_squares = 0;
  const Floats found = state.weights();
  for (int64_t i = 0; i < kCount; ++i) {
    errors.m += std::pow((state.m(i) - m[i]) / std::sqrt(v[i]), 2) / kCount;
    m_squares += m[i] * m[i] / v[i] / kCount;
    errors.v += std::pow(state.v(i) / v[i] - 1, 2) / kCount;
    errors.w += std::pow(found[i] - w[i], 2);
    way += std::pow(w[i] - weights[i], 2);
  }
  return {std::sqrt(errors.m / m_squares), std::sqrt(errors.v), std::sqrt(errors.w / way)};
}

TEST(AdamWSmallMomentsTest, FollowsFloat64WithinTheStatedErrors) {
  struct Bound {
    MomentType type;
    double beta2;
    Errors errors;
  };
  for (const Bound& bound :
       {Bound{MomentType::kBfloat16, 0.95, {.m = 0.008, .v = 0.012, .w = 0.003}},
        Bound{MomentType::kBfloat16, 0.999, {.m = 0.008, .v = 0.03, .w = 0.008}},
        Bound{MomentType::kInt8Blocks, 0.95, {.m = 0.13, .v = 0.19, .w = 0.045}},
        Bound{MomentType::kInt8Blocks, 0.999, {.m = 0.13, .v = 0.26, .w = 0.09}}}) {
    const Errors found = ErrorsAgainstFloat64(bound.type, {.beta2 = bound.beta2}, 300);
    const std::string name =
        std::string(MomentTypeName(bound.type)) + " " + std::to_string(bound.beta2);
    EXPECT_LT(found.m, bound.errors.m) << name;
    EXPECT_LT(found.v, bound.errors.v) << name;
    EXPECT_LT(found.w, bound.errors.w) << name;
    RecordProperty(name, std::to_string(found.m) + " " + std::to_string(found.v) + " " +
                             std::to_string(found.w));
  }
}

// One element of a block has gradients so much larger than the others that their v have no code:
// they get the smallest, and their weights move less, not by what epsilon allows.
TEST(AdamWSmallMomentsTest, WhatIsSmallInItsBlockIsNeverDividedByNothing) {
  ThreadPool pool(1);
  const Floats weights(kMomentBlock, 1.0f);
  Floats gradient(kMomentBlock, 1e-12f);
  gradient[0] = 1e6f;
  gradient[1] = 0;
  State state(MomentType::kInt8Blocks, weights);
  const Hyper hyper{.weight_decay = 0};
  for (int t = 1; t <= 50; ++t) {
    const Floats before = state.weights();
    state.Update({&pool}, hyper, t, gradient);
    const Floats after = state.weights();
    EXPECT_EQ(after[1], 1.0f);
    EXPECT_EQ(state.v(1), 0);
    for (int64_t i = 2; i < kMomentBlock; ++i) {
      ASSERT_EQ(state.v(i), 1.125 * state.v_scale(i));
      // No more than Adam moves a weight by anyway.
      ASSERT_LE(std::abs(after[i] - before[i]), 1.2e-3);
    }
  }
}

TEST(AdamWSmallMomentsTest, WhatIsNotFiniteStaysSo) {
  ThreadPool pool(1);
  for (const MomentType type : kSmallTypes) {
    for (const CpuIsa isa : Isas()) {
      for (const float wrong : {INFINITY, -INFINITY, std::nanf("0x3fffff")}) {
        Floats gradient(100, 0.5f);
        gradient[37] = wrong;
        State state(type, Floats(100, 1.0f));
        for (int t = 1; t <= 5; ++t) state.Update({&pool}, {}, t, gradient, isa);
        // CodeValue() has no infinities: in 8 bits their exponent is fp32's last.
        EXPECT_TRUE(!std::isfinite(state.m(37)) || std::abs(state.m(37)) >= 0x1p128);
        EXPECT_TRUE(!std::isfinite(state.v(37)) || state.v(37) >= 0x1p128);
        EXPECT_FALSE(std::isfinite(state.weights()[37]));
      }
    }
  }
}

TEST(AdamWSmallMomentsTest, RefusesWhatItCannotKeep) {
  ThreadPool pool(1);
  const Floats gradient(10);
  State state(MomentType::kInt8Blocks, Floats(10));
  AdamWSmallMomentsArgs args = state.Args({}, 1, 0, 10);
  args.update.gradient = gradient.data();
  EXPECT_TRUE(AdamWSmallMoments({&pool}, args).ok());
  args.v_scales = nullptr;
  EXPECT_THAT(std::string(AdamWSmallMoments({&pool}, args).message()), HasSubstr("scales"));
  args.type = MomentType::kFloat32;
  EXPECT_THAT(std::string(AdamWSmallMoments({&pool}, args).message()), HasSubstr("smaller type"));
  args = state.Args({}, 1, 0, 10);
  EXPECT_FALSE(AdamWSmallMoments({&pool}, args).ok()) << "no gradient";
}

}  // namespace
}  // namespace penstock
