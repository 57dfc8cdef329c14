#include "engine/audit/weights_diff.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/engine.h"
#include "engine/train/weight_convert.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/train/train_testing.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MadeFile;
using testing::MadeTensor;
using testing::RecordingObserver;
using testing::SomeText;
using testing::TempDir;
using testing::TinyConfig;
using testing::TinyTrainConfig;
using testing::WriteFileOrDie;
using testing::WriteMadeFile;
using testing::WriteModel;

MadeTensor Tensor(const std::string& name, const std::vector<float>& values,
                  WeightType type = WeightType::kFloat32) {
  MadeTensor tensor;
  tensor.entry = {.name = name, .type = type, .shape = {static_cast<int64_t>(values.size())}};
  tensor.bytes.resize(static_cast<size_t>(tensor.entry.bytes()));
  NarrowWeights(type, values, reinterpret_cast<std::byte*>(tensor.bytes.data()));
  return tensor;
}

std::vector<float> Random(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

class WeightsDiffTest : public ::testing::Test {
 protected:
  std::string Make(const std::string& name, const std::vector<MadeFile>& files) {
    WriteModel(dir_.Path(name), TinyConfig(), files);
    return dir_.Path(name);
  }
  WeightsDiff MustDiff(const std::string& before, const std::string& after) {
    auto diff = DiffWeights(before, after, pool_);
    EXPECT_TRUE(diff.ok()) << diff.status();
    return diff.ok() ? *std::move(diff) : WeightsDiff();
  }

  TempDir dir_;
  ThreadPool pool_{2};
};

TEST_F(WeightsDiffTest, GivesTheNumbersOfANaiveComputation) {
  // Longer than a window, and in another order and type on the other side.
  const std::vector<float> a = Random(700'001, 1), b = Random(700'001, 2);
  const std::vector<float> c = Random(77, 3);
  const std::string before =
      Make("before", {{"model.safetensors", {Tensor("t", a), Tensor("c", c)}}});
  const std::string after =
      Make("after", {{"model-1.safetensors", {Tensor("c", c)}},
                     {"model-2.safetensors", {Tensor("t", b, WeightType::kBFloat16)}}});
  const WeightsDiff diff = MustDiff(before, after);
  double norm_a = 0, norm_b = 0, change = 0, largest = 0;
  int64_t changed = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const float rounded = std::bit_cast<float>(static_cast<uint32_t>(FloatToBFloat16(b[i])) << 16);
    const double d = double{rounded} - double{a[i]};
    norm_a += double{a[i]} * a[i];
    norm_b += double{rounded} * rounded;
    change += d * d;
    largest = std::max(largest, std::abs(d));
    changed += d != 0;
  }
  ASSERT_EQ(diff.tensors.size(), 2u);
  const TensorChange& same = diff.tensors[0];
  EXPECT_EQ(same.name, "c");
  EXPECT_EQ(same.changed, 0);
  EXPECT_EQ(same.relative_change(), 0);
  const TensorChange& t = diff.tensors[1];
  EXPECT_EQ(t.elements, 700'001);
  EXPECT_EQ(t.changed, changed);
  EXPECT_DOUBLE_EQ(t.norm_before, std::sqrt(norm_a));
  EXPECT_DOUBLE_EQ(t.norm_after, std::sqrt(norm_b));
  EXPECT_DOUBLE_EQ(t.change_norm, std::sqrt(change));
  EXPECT_DOUBLE_EQ(t.max_abs_change, largest);
  EXPECT_DOUBLE_EQ(t.relative_change(), std::sqrt(change / norm_a));
  EXPECT_DOUBLE_EQ(diff.change_norm, t.change_norm);
  EXPECT_THAT(diff.anomalies, IsEmpty());
}

TEST_F(WeightsDiffTest, SaysWhatIsOnOneSideOnly) {
  const std::string before = Make(
      "before", {{"model.safetensors", {Tensor("a", {1}), Tensor("b", {1, 2}), Tensor("c", {1})}}});
  const std::string after =
      Make("after",
           {{"model.safetensors", {Tensor("b", {1, 2, 3}), Tensor("c", {2}), Tensor("d", {1})}}});
  const WeightsDiff diff = MustDiff(before, after);
  EXPECT_THAT(diff.only_before, ElementsAre("a"));
  EXPECT_THAT(diff.only_after, ElementsAre("d"));
  EXPECT_THAT(diff.reshaped, ElementsAre("b"));
  ASSERT_EQ(diff.tensors.size(), 1u);
  EXPECT_EQ(diff.tensors[0].max_abs_change, 1);
}

// Eight layers that all move by a thousandth, but for what `change` does to one of them.
TEST_F(WeightsDiffTest, FindsTheLayerThatIsBroken) {
  const auto name = [](int layer) { return absl::StrCat("model.layers.", layer, ".w.weight"); };
  std::vector<MadeTensor> before, after;
  for (int layer = 0; layer < 8; ++layer) {
    std::vector<float> values = Random(1000, static_cast<uint32_t>(layer));
    before.push_back(Tensor(name(layer), values));
    for (float& value : values) value *= 1.001F;
    if (layer == 1) values = Random(1000, 1);   // as it was
    if (layer == 2) values = Random(1000, 99);  // another's
    if (layer == 3) values.assign(1000, 0);
    if (layer == 4) values[17] = std::numeric_limits<float>::quiet_NaN();
    if (layer == 4) values[18] = -std::numeric_limits<float>::infinity();
    after.push_back(Tensor(name(layer), values));
  }
  const WeightsDiff diff = MustDiff(Make("before", {{"model.safetensors", before}}),
                                    Make("after", {{"model.safetensors", after}}));
  std::vector<std::string> found;
  for (const Anomaly& anomaly : diff.anomalies) {
    found.push_back(absl::StrCat(anomaly.tensor.substr(13, 1), " ", ToString(anomaly.kind)));
  }
  EXPECT_THAT(found, ElementsAre("1 unchanged", "2 far_larger", "3 all_zero", "3 far_larger",
                                 "4 not_finite"));
  EXPECT_THAT(diff.anomalies[1].text, HasSubstr("the median of model.layers.*.w.weight"));
  EXPECT_EQ(diff.tensors[4].not_finite_after, 2);
  EXPECT_EQ(diff.tensors[4].not_finite_before, 0);
  EXPECT_TRUE(std::isfinite(diff.change_norm));
}

TEST_F(WeightsDiffTest, ComparesCheckpointsAndExportsWithEachOther) {
  WriteFileOrDie(dir_.Path("data.txt"), SomeText(300));
  fs::create_directories(dir_.Path("run"));
  TrainConfig config = TinyTrainConfig(dir_.Path("run"), dir_.Path("data.txt"));
  config.checkpoints = {.every_steps = 1, .keep_last = 4};
  config.output_directory = dir_.Path("exported");
  RecordingObserver observer;
  ASSERT_TRUE(Train(config, observer).ok());
  const std::string first = config.checkpoint_directory + "/1";
  const std::string last = config.checkpoint_directory + "/4";
  const WeightsDiff moved = MustDiff(first, last);
  EXPECT_GT(moved.change_norm, 0);
  EXPECT_THAT(moved.only_before, IsEmpty());
  EXPECT_THAT(moved.only_after, IsEmpty());
  for (const TensorChange& tensor : moved.tensors) EXPECT_GT(tensor.changed, 0) << tensor.name;
  // The export holds the weights of the last one.
  const WeightsDiff same = MustDiff(last, config.output_directory);
  EXPECT_EQ(same.change_norm, 0);
  EXPECT_EQ(same.tensors.size(), moved.tensors.size());
  EXPECT_THAT(same.anomalies, IsEmpty());
}

TEST_F(WeightsDiffTest, RefusesWhatHoldsNoWeights) {
  const std::string good = Make("good", {{"model.safetensors", {Tensor("a", {1})}}});
  EXPECT_EQ(DiffWeights(good, dir_.Path("none"), pool_).status().code(),
            absl::StatusCode::kNotFound);
  fs::create_directories(dir_.Path("empty"));
  const absl::Status empty = DiffWeights(dir_.Path("empty"), good, pool_).status();
  EXPECT_EQ(ReasonOf(empty), reason::kModelInvalid);
  EXPECT_THAT(std::string(empty.message()), HasSubstr("neither a checkpoint"));
  fs::create_directories(dir_.Path("index"));
  for (const char* index : {"[", "{}", R"({"weight_map": {"a": 1}})",
                            R"({"weight_map": {"a": "../good/model.safetensors"}})",
                            R"({"weight_map": {"a": "gone.safetensors"}})"}) {
    WriteFileOrDie(dir_.Path("index/model.safetensors.index.json"), index);
    EXPECT_FALSE(DiffWeights(good, dir_.Path("index"), pool_).ok()) << index;
  }
  // One tensor in two shards: nobody knows which counts.
  WriteMadeFile(dir_.Path("index"), {"x.safetensors", {Tensor("a", {1})}});
  WriteMadeFile(dir_.Path("index"), {"y.safetensors", {Tensor("a", {1})}});
  WriteFileOrDie(dir_.Path("index/model.safetensors.index.json"),
                 R"({"weight_map": {"a": "x.safetensors", "b": "y.safetensors"}})");
  EXPECT_THAT(std::string(DiffWeights(good, dir_.Path("index"), pool_).status().message()),
              HasSubstr("in more than one file"));
}

}  // namespace
}  // namespace penstock
