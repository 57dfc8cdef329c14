// The optimizer's ops on CUDA against the same ops on the CPU. Both round every operation
// correctly and in the same order, so they are held to equal bits, not to a bound.
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/kernels/adamw.h"
#include "engine/kernels/round_gradients.h"
#include "engine/kernels/sum_of_squares.h"
#include "engine/memory/planes.h"
#include "gtest/gtest.h"
#include "tests/engine/kernels/cuda_parity.h"

namespace penstock {
namespace {

// Ordinary numbers with, now and then, one that is not.
Floats WithSpecials(int64_t count, uint32_t seed, float deviation) {
  const float specials[] = {0.0f, -0.0f, 1e-45f, -1e-39f, 1.17549435e-38f, 1e-20f, 1e20f, 3e38f};
  Floats values = Random(count, seed, deviation);
  for (int64_t i = seed % 5; i < count; i += 37) {
    values[i] = specials[(i + seed) % std::size(specials)];
  }
  return values;
}

std::vector<bf16> Rounded(const Floats& values) {
  std::vector<bf16> rounded;
  for (const float value : values) rounded.push_back(ToBf16(value));
  return rounded;
}

// NaN equals NaN, whatever its payload.
template <typename T>
void ExpectSame(const std::vector<T>& actual, const std::vector<T>& expected, const char* what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] != actual[i] && expected[i] != expected[i]) continue;
    ASSERT_EQ(std::memcmp(&actual[i], &expected[i], sizeof(T)), 0) << what << "[" << i << "]";
  }
}

struct State {
  std::vector<uint16_t> hi;
  std::vector<int16_t> lo;
  Floats m, v;

  explicit State(const Floats& w) : hi(w.size()), lo(w.size()), m(w.size()), v(w.size()) {
    SplitPlanes(w.data(), static_cast<int64_t>(w.size()), hi.data(), lo.data());
  }
  Floats weights() const {
    Floats w(hi.size());
    JoinPlanes(hi.data(), lo.data(), static_cast<int64_t>(hi.size()), w.data());
    return w;
  }
};

class DeviceState {
 public:
  explicit DeviceState(const State& state)
      : hi(state.hi), lo(state.lo), m(state.m), v(state.v), state_(state) {}
  State Download() const {
    State state = state_;
    state.hi = hi.Download();
    state.lo = lo.Download();
    state.m = m.Download();
    state.v = v.Download();
    return state;
  }
  DeviceArray<uint16_t> hi;
  DeviceArray<int16_t> lo;
  DeviceFloats m, v;

 private:
  State state_;
};

// Update number t of what begins `offset` elements into the arrays; null gradients are left out.
AdamWArgs Args(int t, double beta1, int64_t offset, int64_t count) {
  return {.hi = nullptr,
          .lo = nullptr,
          .m = nullptr,
          .v = nullptr,
          .count = count - offset,
          .learning_rate = 1e-3,
          .beta1 = beta1,
          .beta2 = 0.95,
          .epsilon = 1e-8,
          .weight_decay = 0.1,
          .gradient_scale = 0.37f,
          .bias_correction1 = 1 - std::pow(beta1, t),
          .bias_correction2 = 1 - std::pow(0.95, t)};
}

AdamWArgs With(AdamWArgs args, uint16_t* hi, int16_t* lo, float* m, float* v, int64_t offset) {
  args.hi = hi + offset;
  args.lo = lo + offset;
  args.m = m + offset;
  args.v = v + offset;
  return args;
}

void CheckAdamW(const cuda::Context& context, int64_t count, int64_t offset, double beta1,
                bool rounded_gradient) {
  SCOPED_TRACE(testing::Message() << "count " << count << ", offset " << offset << ", beta1 "
                                  << beta1 << ", bf16 " << rounded_gradient);
  ThreadPool pool(1);
  State expected(WithSpecials(count, 1, 0.02f));
  DeviceState actual(expected);
  for (int t = 1; t <= 3; ++t) {
    const Floats gradient = WithSpecials(count, 10 + t, 1.0f);
    const std::vector<bf16> rounded = Rounded(gradient);
    const DeviceFloats device_gradient(gradient);
    const DeviceArray<bf16> device_rounded(rounded);
    const AdamWArgs args = Args(t, beta1, offset, count);
    AdamWArgs host = With(args, expected.hi.data(), expected.lo.data(), expected.m.data(),
                          expected.v.data(), offset);
    AdamWArgs device =
        With(args, actual.hi.data(), actual.lo.data(), actual.m.data(), actual.v.data(), offset);
    if (rounded_gradient) {
      host.gradient_bf16 = rounded.data() + offset;
      device.gradient_bf16 = device_rounded.data() + offset;
    } else {
      host.gradient = gradient.data() + offset;
      device.gradient = device_gradient.data() + offset;
    }
    ASSERT_TRUE(AdamW(cpu::Context{&pool}, host).ok());
    // Every other time its weights alone, from the moments before; then those of the host.
    const bool in_parts = t % 2 == 0;
    const State before = actual.Download();
    device.part = in_parts ? UpdatePart::kWeights : UpdatePart::kAll;
    ASSERT_TRUE(AdamW(context, device).ok());
    if (in_parts) {
      const State weights = actual.Download();
      ExpectSame(weights.m, before.m, "m before its part");
      ExpectSame(weights.v, before.v, "v before its part");
      actual.m = DeviceFloats(expected.m);
      actual.v = DeviceFloats(expected.v);
    }
    const State after = actual.Download();
    ExpectSame(after.weights(), expected.weights(), "w");
    ExpectSame(after.m, expected.m, "m");
    ExpectSame(after.v, expected.v, "v");
  }
}

TEST(CudaAdamWTest, GivesTheBitsOfTheCpu) {
  const auto context = ContextOrNull();
  if (context == nullptr) GTEST_SKIP() << "no GPU";
  for (const int64_t count : {1, 3, 4, 1000, 50021, 3'000'000}) {
    for (const bool rounded : {false, true}) CheckAdamW(context->get(), count, 0, 0.9, rounded);
  }
  for (const bool rounded : {false, true}) {
    CheckAdamW(context->get(), 50021, 0, 0.3, rounded);  // the other form of lerp
    CheckAdamW(context->get(), 50021, 1, 0.9, rounded);  // no vector loads
    CheckAdamW(context->get(), 50021, 8, 0.9, rounded);
  }
}

TEST(CudaAdamWTest, RefusesABrokenContractBeforeItStarts) {
  const cuda::Context context{};
  EXPECT_EQ(AdamW(context, Args(1, 0.9, 0, 5)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AdamW(context, Args(0, 0.9, 0, 0)).code(), absl::StatusCode::kInvalidArgument);
  uint16_t hi = 0;
  int16_t lo = 0;
  float f32[3] = {};
  AdamWArgs nothing = With(Args(1, 0.9, 0, 0), &hi, &lo, &f32[0], &f32[1], 0);
  nothing.gradient = &f32[2];
  EXPECT_TRUE(AdamW(context, nothing).ok());
  nothing.part = UpdatePart::kMoments;
  EXPECT_EQ(AdamW(context, nothing).code(), absl::StatusCode::kInvalidArgument);
}

// Around where the one block of the in-place start ends, and where ranges double.
constexpr int64_t kRoundCounts[] = {0,     1,     2,     3,     16383,  16384,    16385,
                                    16387, 32768, 32769, 65537, 300001, 5'000'003};

TEST(CudaRoundToBf16Test, GivesTheBitsOfTheCpuApartAndInPlace) {
  const auto context = ContextOrNull();
  if (context == nullptr) GTEST_SKIP() << "no GPU";
  for (const int64_t count : kRoundCounts) {
    for (const int64_t offset : {0, 1}) {
      if (count < offset) continue;
      SCOPED_TRACE(testing::Message() << "count " << count << ", offset " << offset);
      Floats in = WithSpecials(count, 3, 1.0f);
      if (count > 2) in[2] = std::numeric_limits<float>::infinity();
      const std::vector<bf16> rounded = Rounded(in);
      Floats expected;
      for (int64_t i = offset; i < count; ++i) expected.push_back(ToFloat(rounded[i]));

      const DeviceFloats device_in(in);
      const DeviceArray<bf16> apart(std::vector<bf16>(count, {0x1234}));
      ASSERT_TRUE(RoundToBf16(context->get(), device_in.data() + offset, apart.data() + offset,
                              count - offset)
                      .ok());
      Floats actual;
      for (const bf16 value : apart.Download()) actual.push_back(ToFloat(value));
      actual.erase(actual.begin(), actual.begin() + offset);
      ExpectSame(actual, expected, "apart");

      bf16* in_place = reinterpret_cast<bf16*>(device_in.data() + offset);
      ASSERT_TRUE(
          RoundToBf16(context->get(), device_in.data() + offset, in_place, count - offset).ok());
      const Floats words = device_in.Download();
      std::vector<bf16> halves(count - offset);
      std::memcpy(halves.data(), words.data() + offset, halves.size() * sizeof(bf16));
      actual.clear();
      for (const bf16 value : halves) actual.push_back(ToFloat(value));
      ExpectSame(actual, expected, "in place");
    }
  }
}

TEST(CudaRoundToBf16Test, NaNStaysNaN) {
  const auto context = ContextOrNull();
  if (context == nullptr) GTEST_SKIP() << "no GPU";
  const DeviceFloats in(Poisoned(5));
  const DeviceArray<bf16> out(std::vector<bf16>(5));
  ASSERT_TRUE(RoundToBf16(context->get(), in.data(), out.data(), 5).ok());
  for (const bf16 value : out.Download()) EXPECT_TRUE(std::isnan(ToFloat(value)));
}

// One order for a count: neither the type of the elements nor where they begin changes a bit.
TEST(CudaSumOfSquaresTest, TypeAndAlignmentChangeNoBit) {
  const auto context = ContextOrNull();
  if (context == nullptr) GTEST_SKIP() << "no GPU";
  ThreadPool pool(2);
  for (const int64_t count : {1, 7, 8, 9, 2049, 1'000'003, 20'000'000}) {
    const Floats x = RandomBf16(count, 1);
    const std::vector<bf16> rounded = Rounded(x);
    Floats shifted = x;
    shifted.insert(shifted.begin(), 1e30f);
    std::vector<bf16> rounded_shifted = rounded;
    rounded_shifted.insert(rounded_shifted.begin(), ToBf16(1e30f));
    const DeviceFloats floats(x), unaligned(shifted);
    const DeviceArray<bf16> halves(rounded), unaligned_halves(rounded_shifted);
    const auto sum = [&](const auto* values) {
      const DeviceArray<double> total({0.5});
      EXPECT_TRUE(SumOfSquares(context->get(), values, count, total.data()).ok());
      return total.Download()[0];
    };
    const double expected = sum(floats.data());
    EXPECT_NEAR(expected / (0.5 + SumOfSquares(cpu::Context{&pool}, x.data(), count)), 1, 1e-13);
    EXPECT_EQ(sum(unaligned.data() + 1), expected) << count;
    EXPECT_EQ(sum(halves.data()), expected) << count;
    EXPECT_EQ(sum(unaligned_halves.data() + 1), expected) << count;
  }
}

}  // namespace
}  // namespace penstock
