#include "engine/kernels/adamw.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/memory/host_memory.h"
#include "engine/memory/planes.h"
#include "gtest/gtest.h"
#include "tests/engine/kernels/adamw_testing.h"
#include "tests/engine/kernels/parity.h"

namespace penstock {
namespace {

struct Hyper {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  float gradient_scale = 1.0f;
};

// One model's state, each array `offset` elements after a page: 0 is aligned to lines.
class State {
 public:
  State(const Floats& weights, int64_t offset) : count_(weights.size()) {
    memory_ = *HostMemory::Allocate(4 * Spacing(count_));
    const auto array = [&](int index) { return memory_.data() + index * Spacing(count_); };
    hi = reinterpret_cast<uint16_t*>(array(0)) + offset;
    lo = reinterpret_cast<int16_t*>(array(1)) + offset;
    m = reinterpret_cast<float*>(array(2)) + offset;
    v = reinterpret_cast<float*>(array(3)) + offset;
    SplitPlanes(weights.data(), count_, hi, lo);
  }

  // Update number t, from 1.
  void Update(const cpu::Context& context, const Hyper& hyper, int t, const Floats& gradient,
              CpuIsa isa, UpdatePart part = UpdatePart::kAll) {
    Update(context, hyper, t, gradient.data(), nullptr, isa, part);
  }
  void Update(const cpu::Context& context, const Hyper& hyper, int t,
              const std::vector<bf16>& gradient, CpuIsa isa, UpdatePart part = UpdatePart::kAll) {
    Update(context, hyper, t, nullptr, gradient.data(), isa, part);
  }

  void CopyTo(State& other) const {
    std::copy_n(hi, count_, other.hi);
    std::copy_n(lo, count_, other.lo);
    std::copy_n(m, count_, other.m);
    std::copy_n(v, count_, other.v);
  }

  Floats weights() const {
    Floats w(count_);
    JoinPlanes(hi, lo, count_, w.data());
    return w;
  }

  bool SameBits(const State& other) const { return SameWeights(other) && SameMoments(other); }
  bool SameWeights(const State& other) const {
    return Same(hi, other.hi, 2) && Same(lo, other.lo, 2);
  }
  bool SameMoments(const State& other) const { return Same(m, other.m, 4) && Same(v, other.v, 4); }

  AdamWArgs Args(const Hyper& hyper, int t, const float* gradient, const bf16* gradient_bf16,
                 UpdatePart part) const {
    return {.hi = hi,
            .lo = lo,
            .m = m,
            .v = v,
            .gradient = gradient,
            .gradient_bf16 = gradient_bf16,
            .count = count_,
            .learning_rate = hyper.learning_rate,
            .beta1 = hyper.beta1,
            .beta2 = hyper.beta2,
            .epsilon = hyper.epsilon,
            .weight_decay = hyper.weight_decay,
            .gradient_scale = hyper.gradient_scale,
            .bias_correction1 = 1 - std::pow(hyper.beta1, t),
            .bias_correction2 = 1 - std::pow(hyper.beta2, t),
            .part = part};
  }

  uint16_t* hi;
  int16_t* lo;
  float* m;
  float* v;

 private:
  bool Same(const void* a, const void* b, int64_t element_bytes) const {
    return std::memcmp(a, b, count_ * element_bytes) == 0;
  }
  static int64_t Spacing(int64_t count) { return (count * 4 / 4096 + 2) * 4096; }

  void Update(const cpu::Context& context, const Hyper& hyper, int t, const float* gradient,
              const bf16* gradient_bf16, CpuIsa isa, UpdatePart part) {
    const absl::Status status = AdamW(context, Args(hyper, t, gradient, gradient_bf16, part), isa);
    ASSERT_TRUE(status.ok()) << status;
  }

  int64_t count_;
  HostMemory memory_;
};

// AdamW as the paper has it, in f64.
struct Float64AdamW {
  reference::Doubles w, m, v;
  explicit Float64AdamW(const Floats& weights)
      : w(weights.begin(), weights.end()), m(w.size()), v(w.size()) {}

  void Update(const Hyper& hyper, int t, const Floats& gradient) {
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = double{gradient[i]} * hyper.gradient_scale;
      w[i] -= hyper.learning_rate * hyper.weight_decay * w[i];
      m[i] = hyper.beta1 * m[i] + (1 - hyper.beta1) * g;
      v[i] = hyper.beta2 * v[i] + (1 - hyper.beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(hyper.beta1, t));
      const double v_hat = v[i] / (1 - std::pow(hyper.beta2, t));
      w[i] -= hyper.learning_rate * m_hat / (std::sqrt(v_hat) + hyper.epsilon);
    }
  }
};

TEST(AdamWTest, InstructionSetsThreadsAndAlignmentsGiveTheSameBits) {
  ThreadPool one(1);
  ThreadPool three(3);
  for (const int64_t count : {1, 15, 16, 31, 33, 100, 16384, 50021}) {
    for (const double beta1 : {0.9, 0.3}) {  // both forms of lerp
      const Hyper hyper{.beta1 = beta1, .gradient_scale = 0.37f};
      const Floats weights = Random(count, 1, 0.02f);
      State expected(weights, 0);
      for (int t = 1; t <= 3; ++t) {
        expected.Update({&one}, hyper, t, Random(count, 10 + t), CpuIsa::kPortable);
      }
      for (const CpuIsa isa : Isas()) {
        for (const int64_t offset : {0, 3}) {
          State state(weights, offset);
          for (int t = 1; t <= 3; ++t) {
            state.Update({&three}, hyper, t, Random(count, 10 + t), isa);
          }
          EXPECT_TRUE(state.SameBits(expected))
              << "isa " << static_cast<int>(isa) << ", count " << count << ", offset " << offset;
        }
      }
    }
  }
}

TEST(AdamWTest, GradientsInBfloat16GiveTheBitsOfTheirFloats) {
  ThreadPool one(1);
  ThreadPool three(3);
  for (const int64_t count : {1, 15, 16, 33, 50021}) {
    const Hyper hyper{.gradient_scale = 0.37f};
    const Floats weights = Random(count, 1, 0.02f);
    State expected(weights, 0);
    for (int t = 1; t <= 3; ++t) {
      const std::vector<bf16> gradient = Rounded(Random(count, 10 + t));
      expected.Update({&one}, hyper, t, Widened(gradient), CpuIsa::kPortable);
    }
    for (const CpuIsa isa : Isas()) {
      for (const int64_t offset : {0, 3}) {
        State state(weights, offset);
        for (int t = 1; t <= 3; ++t) {
          state.Update({&three}, hyper, t, Rounded(Random(count, 10 + t)), isa);
        }
        EXPECT_TRUE(state.SameBits(expected))
            << "isa " << static_cast<int>(isa) << ", count " << count << ", offset " << offset;
      }
    }
  }
}

TEST(AdamWTest, WeightsFirstAndMomentsLaterGiveTheBitsOfTheWhole) {
  ThreadPool one(1);
  ThreadPool three(3);
  for (const int64_t count : {1, 15, 16, 33, 100, 50021}) {
    for (const double beta1 : {0.9, 0.3}) {  // both forms of lerp
      const Hyper hyper{.beta1 = beta1, .gradient_scale = 0.37f};
      const Floats weights = Random(count, 1, 0.02f);
      for (const CpuIsa isa : Isas()) {
        SCOPED_TRACE(testing::Message() << "isa " << static_cast<int>(isa) << ", count " << count);
        State whole(weights, 0), parts(weights, 3);
        for (int t = 1; t <= 3; ++t) {
          const std::vector<bf16> gradient = Rounded(Random(count, 10 + t));
          State before(weights, 0);
          whole.CopyTo(before);
          whole.Update({&one}, hyper, t, gradient, isa);
          parts.Update({&three}, hyper, t, gradient, isa, UpdatePart::kWeights);
          EXPECT_TRUE(parts.SameWeights(whole));
          EXPECT_TRUE(parts.SameMoments(before));
          EXPECT_FALSE(parts.SameMoments(whole));
          parts.Update({&three}, hyper, t, Widened(gradient), isa, UpdatePart::kMoments);
          EXPECT_TRUE(parts.SameBits(whole));
        }
      }
    }
  }
}

// Of many sizes, parts and gradient types; so many elements that tasks are the large ones, too.
TEST(AdamWTest, SeveralAtOnceGiveTheBitsOfEachAlone) {
  ThreadPool pool(3);
  for (const int64_t largest : {70'001, 9'000'000}) {
    const std::vector<int64_t> counts = {1, 0, 33, 16384, largest, 16385, 5};
    std::vector<std::unique_ptr<State>> alone, together;
    std::vector<Floats> gradients;
    std::vector<std::vector<bf16>> rounded;
    std::vector<AdamWArgs> all;
    for (const int64_t count : counts) {
      const Floats weights = Random(count, 7, 0.02f);
      for (auto* states : {&alone, &together}) {
        states->push_back(std::make_unique<State>(weights, 0));
      }
      gradients.push_back(Random(count, 8));
      rounded.push_back(Rounded(gradients.back()));
    }
    for (size_t i = 0; i < counts.size(); ++i) {
      const Hyper hyper{.weight_decay = i % 2 == 0 ? 0.1 : 0.0};
      const UpdatePart part = i == 2 ? UpdatePart::kWeights : UpdatePart::kAll;
      const bool halves = i == 3;
      all.push_back(together[i]->Args(hyper, 1, halves ? nullptr : gradients[i].data(),
                                      halves ? rounded[i].data() : nullptr, part));
      alone[i]->Update({&pool}, hyper, 1, halves ? Widened(rounded[i]) : gradients[i], BestCpuIsa(),
                       part);
    }
    ASSERT_TRUE(AdamW(cpu::Context{&pool}, std::span<const AdamWArgs>(all)).ok());
    for (size_t i = 0; i < counts.size(); ++i) {
      EXPECT_TRUE(together[i]->SameBits(*alone[i])) << counts[i] << " of " << largest;
    }
  }
}

TEST(AdamWTest, PatternsThatAreNotOrdinaryGiveTheSameBits) {
  ThreadPool pool(1);
  const Floats special = {0.0f,   -0.0f, 1e-45f,      -1e-45f, 1e-39f, 1.17549435e-38f, 3e38f,
                          -3e38f, 1.0f,  1.00390625f, 1e-20f,  1e20f,  INFINITY,        -INFINITY};
  Floats weights, gradient;
  for (const float w : special) {
    for (const float g : special) {
      weights.push_back(w);
      gradient.push_back(g);
    }
  }
  State expected(weights, 0);
  expected.Update({&pool}, {}, 1, gradient, CpuIsa::kPortable);
  const Floats w = expected.weights();
  for (const CpuIsa isa : Isas()) {
    State state(weights, 0);
    state.Update({&pool}, {}, 1, gradient, isa);
    const Floats actual = state.weights();
    for (size_t i = 0; i < w.size(); ++i) {
      // Which NaN comes out of two is not promised, only that one does.
      if (std::isnan(w[i])) {
        EXPECT_TRUE(std::isnan(actual[i])) << weights[i] << " " << gradient[i];
      } else {
        EXPECT_EQ(std::memcmp(&actual[i], &w[i], 4), 0) << weights[i] << " " << gradient[i];
      }
    }
  }
}

TEST(AdamWTest, FollowsFloat64OverFiftySteps) {
  ThreadPool pool(2);
  constexpr int64_t kCount = 1000;
  // 1 - learning_rate * weight_decay is exact in fp32: rounded, as torch rounds it too, it alone
  // would move a weight by up to 1.5e-6 of itself in fifty steps.
  const Hyper hyper{.learning_rate = 0x1p-12, .weight_decay = 0x1p-3, .gradient_scale = 0.5f};
  // Weights below 1: the fp32 master itself rounds by 6e-8 |w| twice a step.
  const Floats weights = Random(kCount, 1, 0.2f);
  State state(weights, 0);
  Float64AdamW expected(weights);
  for (int t = 1; t <= 50; ++t) {
    const Floats gradient = Random(kCount, 100 + t);
    state.Update({&pool}, hyper, t, gradient, BestCpuIsa());
    expected.Update(hyper, t, gradient);
  }
  const Floats actual = state.weights();
  for (int64_t i = 0; i < kCount; ++i) {
    ASSERT_NEAR(actual[i], expected.w[i], 1e-6);
    ASSERT_NEAR(state.m[i], expected.m[i], 1e-6);
    ASSERT_NEAR(state.v[i], expected.v[i], 1e-6 * std::max(1.0, expected.v[i]));
  }
}

TEST(AdamWTest, WithoutGradientOnlyDecayShrinksTheWeights) {
  ThreadPool pool(1);
  const Hyper hyper{.learning_rate = 1e-2, .weight_decay = 0.5};
  const Floats weights = Random(100, 1);
  const Floats zeros(100, 0.0f);
  State state(weights, 0);
  State spared(weights, 0);
  Hyper no_decay = hyper;
  no_decay.weight_decay = 0;
  for (int t = 1; t <= 10; ++t) {
    state.Update({&pool}, hyper, t, zeros, BestCpuIsa());
    spared.Update({&pool}, no_decay, t, zeros, BestCpuIsa());
  }
  for (int i = 0; i < 100; ++i) {
    EXPECT_NEAR(state.weights()[i], weights[i] * std::pow(1 - 0.005, 10), 1e-6);
  }
  EXPECT_EQ(spared.weights(), weights);
}

// At lr 1e-6 an update of a weight near 1 is far below a step of bf16 (2^-8): with hi alone
// nothing would ever change. The reference is AdamW on an ordinary fp32 array.
TEST(AdamWTest, TinyUpdatesAreNotLost) {
  ThreadPool pool(1);
  const Hyper hyper{.learning_rate = 1e-6, .weight_decay = 0};
  const Floats weights(64, 0.75f);
  const Floats gradient = Random(64, 1);
  State state(weights, 0);
  Floats w = weights, m(64, 0.0f), v(64, 0.0f);
  for (int t = 1; t <= 1000; ++t) {
    state.Update({&pool}, hyper, t, gradient, BestCpuIsa());
    const float step = static_cast<float>(hyper.learning_rate / (1 - std::pow(hyper.beta1, t)));
    const float root = static_cast<float>(std::sqrt(1 - std::pow(hyper.beta2, t)));
    for (int i = 0; i < 64; ++i) {
      m[i] += static_cast<float>(1 - hyper.beta1) * (gradient[i] - m[i]);
      v[i] = v[i] * static_cast<float>(hyper.beta2) +
             static_cast<float>(1 - hyper.beta2) * gradient[i] * gradient[i];
      w[i] += -step * m[i] / (std::sqrt(v[i]) / root + static_cast<float>(hyper.epsilon));
    }
  }
  EXPECT_EQ(state.weights(), w);
  for (int i = 0; i < 64; ++i) {
    // A constant gradient moves the weight by lr each step.
    EXPECT_NEAR(w[i], 0.75 - std::copysign(1e-3, gradient[i]), 1e-4);
  }
}

}  // namespace
}  // namespace penstock
