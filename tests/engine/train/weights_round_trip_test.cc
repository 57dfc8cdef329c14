// A model imported and exported without training is byte-equal, tensor by tensor and file by
// file.
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/memory/planes.h"
#include "engine/train/export.h"
#include "engine/train/import.h"
#include "engine/train/model_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weights_testing.h"

namespace penstock {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using testing::FindMade;
using ::testing::HasSubstr;
using testing::MadeFile;
using testing::MakeFiles;
using testing::MakeStore;
using testing::NoProgress;
using testing::ReadTree;
using testing::SpecOf;
using testing::TempDir;
using testing::TensorsOf;
using testing::TinyConfig;
using testing::WriteFileOrDie;
using testing::WriteModel;

constexpr char kTable[] = "model.embed_tokens.weight";
constexpr char kHead[] = "lm_head.weight";
constexpr char kUp[] = "model.layers.1.mlp.up_proj.weight";

enum class Head { kSeparate, kTied, kTiedWithCopy };

using Case = std::tuple<WeightType, int, Head>;

class RoundTripTest : public ::testing::TestWithParam<Case> {};

TEST_P(RoundTripTest, IsByteEqual) {
  const auto& [type, shards, head] = GetParam();
  TempDir temp;
  json config = TinyConfig();
  const ModelSpec separate = SpecOf(config);
  config["tie_word_embeddings"] = head != Head::kSeparate;
  std::vector<MadeFile> files =
      MakeFiles(head == Head::kTied ? SpecOf(config) : separate, type, shards);
  if (head == Head::kTiedWithCopy) FindMade(files, kHead).bytes = FindMade(files, kTable).bytes;
  WriteModel(temp.Path("model"), config, files);
  WriteFileOrDie(temp.Path("model/tokenizer.json"), "{ \"spacing\" :  \"kept\" }\r\n");

  const auto directory = ModelDirectory::Open(temp.Path("model"));
  ASSERT_TRUE(directory.ok()) << directory.status();
  const auto store = MakeStore((*directory)->layout());
  ThreadPool pool(3);
  ASSERT_TRUE(ImportWeights(**directory, *store, pool, NoProgress).ok());
  const absl::Status status =
      ExportModel(*store, (*directory)->source(), temp.Path("out"), {}, pool, NoProgress);
  ASSERT_TRUE(status.ok()) << status;

  EXPECT_TRUE(TensorsOf(temp.Path("model")) == TensorsOf(temp.Path("out")));
  auto in = ReadTree(temp.Path("model")), out = ReadTree(temp.Path("out"));
  const std::string index = "model.safetensors.index.json";
  ASSERT_EQ(in.contains(index), shards > 1);
  if (shards > 1) {
    const json written = json::parse(out.at(index));
    EXPECT_EQ(written["weight_map"], json::parse(in.at(index))["weight_map"]);
    EXPECT_EQ(written["metadata"]["total_size"],
              head == Head::kTiedWithCopy
                  ? (*directory)->weight_bytes() + 512 * 64 * BytesPerElement(type)
                  : (*directory)->weight_bytes());
    in.erase(index);
    out.erase(index);
  }
  EXPECT_TRUE(in == out);  // not EXPECT_EQ: the files would be printed
}

std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  const auto& [type, shards, head] = info.param;
  const char* name = head == Head::kSeparate ? "Separate"
                     : head == Head::kTied   ? "Tied"
                                             : "TiedWithCopy";
  return absl::StrCat(ToString(type), "Files", shards, name);
}

INSTANTIATE_TEST_SUITE_P(
    All, RoundTripTest,
    ::testing::Combine(::testing::Values(WeightType::kFloat32, WeightType::kFloat16,
                                         WeightType::kBFloat16),
                       ::testing::Values(1, 3),
                       ::testing::Values(Head::kSeparate, Head::kTied, Head::kTiedWithCopy)),
    NameOf);

class ImportTest : public ::testing::Test {
 protected:
  void SetUp() override { files_ = MakeFiles(SpecOf(TinyConfig()), WeightType::kFloat32, 1); }
  std::unique_ptr<ModelDirectory> Open(const json& config) {
    WriteModel(temp_.Path("model"), config, files_);
    auto directory = ModelDirectory::Open(temp_.Path("model"));
    EXPECT_TRUE(directory.ok()) << directory.status();
    return *std::move(directory);
  }
  void SetElement(const std::string& name, int64_t index, float value) {
    FindMade(files_, name).bytes.replace(index * 4, 4, reinterpret_cast<const char*>(&value), 4);
  }

  TempDir temp_;
  std::vector<MadeFile> files_;
  ThreadPool pool_{2};
};

TEST_F(ImportTest, PutsEveryValueInItsPlaceAndLeavesTheRestAlone) {
  const auto directory = Open(TinyConfig());
  const auto store = MakeStore(directory->layout());
  store->block(BlockId{1}).m[5] = 3;
  ASSERT_TRUE(ImportWeights(*directory, *store, pool_, NoProgress).ok());
  EXPECT_EQ(store->block(BlockId{1}).m[5], 3);
  for (const BlockLayout& block : directory->layout().blocks) {
    const BlockStore& planes = store->block(block.block);
    int64_t end = 0;
    for (const Parameter& parameter : block.parameters) {
      for (; end < parameter.offset; ++end) {
        ASSERT_EQ(Join(planes.hi[end], planes.lo[end]), 0) << "gap";
      }
      end = parameter.offset + parameter.size;
      const std::string& bytes = FindMade(files_, parameter.name).bytes;
      for (int64_t i = 0; i < parameter.size; ++i) {
        const int64_t at = parameter.offset + i;
        const uint32_t bits = std::bit_cast<uint32_t>(Join(planes.hi[at], planes.lo[at]));
        ASSERT_EQ(std::memcmp(&bits, bytes.data() + 4 * i, 4), 0) << parameter.name << " " << i;
      }
    }
  }
}

TEST_F(ImportTest, NonFiniteWeightIsRefusedByName) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::filesystem::remove_all(temp_.Path("model"));
    SetElement(kUp, 1234, bad);
    const auto directory = Open(TinyConfig());
    const auto store = MakeStore(directory->layout());
    const absl::Status status = ImportWeights(*directory, *store, pool_, NoProgress);
    EXPECT_EQ(ReasonOf(status), reason::kModelInvalid);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(kUp), HasSubstr("element 1234")));
  }
}

TEST_F(ImportTest, FileCutOffAfterOpeningIsDataLoss) {
  const auto directory = Open(TinyConfig());
  const auto store = MakeStore(directory->layout());
  std::filesystem::resize_file(temp_.Path("model/model.safetensors"), 100'000);
  EXPECT_EQ(ImportWeights(*directory, *store, pool_, NoProgress).code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(ImportTest, ProgressReachesTheTotalAndCanStopTheImport) {
  const auto directory = Open(TinyConfig());
  const auto store = MakeStore(directory->layout());
  int64_t last = 0;
  const absl::Status whole =
      ImportWeights(*directory, *store, pool_, [&](int64_t done, int64_t total) {
        EXPECT_GT(done, last);
        EXPECT_EQ(total, directory->weight_bytes());
        last = done;
        return absl::OkStatus();
      });
  EXPECT_TRUE(whole.ok());
  EXPECT_EQ(last, directory->weight_bytes());
  int calls = 0;
  const absl::Status stopped = ImportWeights(*directory, *store, pool_, [&](int64_t, int64_t) {
    ++calls;
    return absl::CancelledError("stop");
  });
  EXPECT_EQ(stopped, absl::CancelledError("stop"));
  EXPECT_EQ(calls, 1);
}

// A tensor of several windows, in a type that is widened.
TEST(ImportWindowTest, LargeTensorCrossesWindows) {
  TempDir temp;
  json config = TinyConfig();
  config["vocab_size"] = 40000;  // 2.56 M elements, 2.4 windows
  const std::vector<MadeFile> files = MakeFiles(SpecOf(config), WeightType::kFloat16, 1);
  WriteModel(temp.Path("model"), config, files);
  const auto directory = ModelDirectory::Open(temp.Path("model"));
  ASSERT_TRUE(directory.ok());
  ASSERT_GT((*directory)->tensors()[0].elements, 2 * kWindowElements);
  const auto store = MakeStore((*directory)->layout());
  ThreadPool pool(2);
  ASSERT_TRUE(ImportWeights(**directory, *store, pool, NoProgress).ok());
  ASSERT_TRUE(
      ExportModel(*store, (*directory)->source(), temp.Path("out"), {}, pool, NoProgress).ok());
  EXPECT_TRUE(TensorsOf(temp.Path("model")) == TensorsOf(temp.Path("out")));
}

}  // namespace
}  // namespace penstock
