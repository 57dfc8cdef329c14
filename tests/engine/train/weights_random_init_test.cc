#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/memory/planes.h"
#include "engine/train/random_init.h"
#include "gtest/gtest.h"
#include "weights_testing.h"

namespace penstock {
namespace {

using testing::MakeStore;
using testing::SpecOf;
using testing::TinyConfig;

std::vector<float> ValuesOf(const HostStore& store, BlockId id) {
  const BlockStore& block = store.block(id);
  std::vector<float> values(block.hi.size());
  JoinPlanes(block.hi.data(), block.lo.data(), static_cast<int64_t>(values.size()), values.data());
  return values;
}

std::vector<float> AllValues(const ModelSpec& spec, uint64_t seed, int threads) {
  const ModelLayout layout = MakeLayout(spec);
  const auto store = MakeStore(layout);
  ThreadPool pool(threads);
  InitializeWeights(spec, seed, *store, pool);
  std::vector<float> all;
  for (const BlockLayout& block : layout.blocks) {
    const std::vector<float> values = ValuesOf(*store, block.block);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

ModelSpec SpecWithBiases() {
  nlohmann::json config = TinyConfig();
  config["model_type"] = "qwen3";
  config["architectures"] = {"Qwen3ForCausalLM"};
  config["head_dim"] = 16;
  config["attention_bias"] = true;
  // More than one piece in the largest tensors, and a last piece that is no multiple of four.
  config["vocab_size"] = 2001;
  config["hidden_size"] = 63;
  return SpecOf(config);
}

TEST(RandomInitTest, BitsDependOnTheSeedAndNotOnTheThreads) {
  const ModelSpec spec = SpecWithBiases();
  const std::vector<float> one = AllValues(spec, 7, 1);
  EXPECT_EQ(one, AllValues(spec, 7, 3));
  EXPECT_NE(one, AllValues(spec, 8, 1));
  EXPECT_NE(one, AllValues(spec, 7 + (uint64_t{1} << 32), 1));
}

struct Moments {
  double mean = 0, deviation = 0, kurtosis = 0;
};
Moments MomentsOf(const float* values, int64_t count) {
  Moments moments;
  double square = 0, fourth = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double x = values[i];
    moments.mean += x;
    square += x * x;
    fourth += x * x * x * x;
  }
  const double n = static_cast<double>(count);
  moments.mean /= n;
  moments.deviation = std::sqrt(square / n);
  moments.kurtosis = fourth / n / std::pow(square / n, 2);
  return moments;
}

TEST(RandomInitTest, EveryRoleFollowsItsRule) {
  ModelSpec spec = SpecWithBiases();
  spec.initializer_range = 0.05;
  const ModelLayout layout = MakeLayout(spec);
  const auto store = MakeStore(layout);
  ThreadPool pool(2);
  InitializeWeights(spec, 1, *store, pool);
  for (const BlockLayout& block : layout.blocks) {
    const std::vector<float> values = ValuesOf(*store, block.block);
    int64_t end = 0;
    for (const Parameter& parameter : block.parameters) {
      const float* begin = values.data() + parameter.offset;
      for (; end < parameter.offset; ++end) ASSERT_EQ(values[end], 0) << "gap";
      end = parameter.offset + parameter.size;
      if (parameter.shape.size() == 1) {
        const float wanted = parameter.name.find("norm") != std::string::npos ? 1 : 0;
        EXPECT_EQ(std::count(begin, begin + parameter.size, wanted), parameter.size)
            << parameter.name;
        continue;
      }
      const bool residual = parameter.role == Role::kOWeight || parameter.role == Role::kDownWeight;
      const double wanted = 0.05 * (residual ? 0.5 : 1);  // two layers: 1 / sqrt(4)
      const Moments moments = MomentsOf(begin, parameter.size);
      const double error = 6 / std::sqrt(static_cast<double>(parameter.size));  // six sigma
      EXPECT_NEAR(moments.mean / wanted, 0, error) << parameter.name;
      EXPECT_NEAR(moments.deviation / wanted, 1, error) << parameter.name;
      EXPECT_NEAR(moments.kurtosis, 3, 5 * error) << parameter.name;
    }
    for (; end < block.size; ++end) ASSERT_EQ(values[end], 0) << "gap";
  }
}

TEST(RandomInitTest, TensorsOfOneShapeDiffer) {
  const ModelSpec spec = SpecOf(TinyConfig());
  const ModelLayout layout = MakeLayout(spec);
  const auto store = MakeStore(layout);
  ThreadPool pool(1);
  InitializeWeights(spec, 1, *store, pool);
  EXPECT_NE(ValuesOf(*store, BlockId{1}), ValuesOf(*store, BlockId{2}));
}

}  // namespace
}  // namespace penstock
