#include "tests/engine/kernels/cuda_parity.h"

#include "gtest/gtest.h"

namespace penstock {

Floats RandomBf16(int64_t count, uint32_t seed, float deviation) {
  Floats values = Random(count, seed, deviation);
  for (float& value : values) value = ToFloat(ToBf16(value));
  return values;
}

std::vector<bf16> DeviceBf16::Round(const Floats& values) {
  std::vector<bf16> rounded;
  rounded.reserve(values.size());
  for (const float value : values) rounded.push_back(ToBf16(value));
  return rounded;
}

Floats DeviceBf16::Download() const {
  Floats values;
  for (const bf16 value : array_.Download()) values.push_back(ToFloat(value));
  return values;
}

void ExpectParity(const CudaCase& one, const cuda::Context& context) {
  const std::vector<Floats> actual = one.run(context);
  const std::vector<reference::Doubles> expected = one.expected();
  ASSERT_EQ(actual.size(), expected.size());
  ASSERT_EQ(actual.size(), one.tolerances.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ExpectClose(actual[i], expected[i], one.tolerances[i], "output " + std::to_string(i));
  }
  const std::vector<Floats> again = one.run(context);
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(SameBits(actual[i], again[i])) << "output " << i;
  }
}

std::unique_ptr<cuda::OwnedContext> ContextOrNull() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return nullptr;
  auto context = cuda::OwnedContext::Create();
  PENSTOCK_CHECK(context.ok(), std::string(context.status().message()));
  return *std::move(context);
}

}  // namespace penstock
