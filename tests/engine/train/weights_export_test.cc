#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>
#include <string>

#include "absl/strings/match.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/memory/planes.h"
#include "engine/train/export.h"
#include "engine/train/import.h"
#include "engine/train/model_directory.h"
#include "engine/train/random_init.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weights_testing.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MakeFiles;
using testing::MakeStore;
using testing::NoProgress;
using testing::ReadFileOrDie;
using testing::ReadTree;
using testing::SpecOf;
using testing::TempDir;
using testing::TensorsOf;
using testing::TinyConfig;
using testing::WriteFileOrDie;
using testing::WriteModel;

std::vector<std::string> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

class ExportTest : public ::testing::Test {
 protected:
  ExportTest() : spec_(SpecOf(TinyConfig())), layout_(MakeLayout(spec_)) {
    fs::create_directories(temp_.Path("place"));
    store_ = MakeStore(layout_);
    InitializeWeights(spec_, 1, *store_, pool_);
  }
  std::string out() const { return temp_.Path("place/out"); }
  ExportSource Source(WeightType type, int64_t max_file_bytes = int64_t{1} << 30) const {
    return MakeExportSource(layout_, TinyConfig().dump(2), type, max_file_bytes);
  }
  absl::Status Export(const ExportSource& source, const ExportOptions& options = {}) {
    return ExportModel(*store_, source, out(), options, pool_, NoProgress);
  }
  void SetWeight(float value) {
    const SplitValue split = Split(value);
    store_->block(BlockId{1}).hi[3] = split.hi;
    store_->block(BlockId{1}).lo[3] = split.lo;
  }

  TempDir temp_;
  ModelSpec spec_;
  ModelLayout layout_;
  ThreadPool pool_{2};
  std::unique_ptr<HostStore> store_;
};

TEST_F(ExportTest, RandomModelLoadsAgain) {
  for (const int64_t max_file_bytes : {int64_t{1} << 30, int64_t{100'000}, int64_t{1}}) {
    fs::remove_all(out());
    const ExportSource source = Source(WeightType::kFloat32, max_file_bytes);
    ASSERT_TRUE(Export(source).ok());
    const auto directory = ModelDirectory::Open(out());
    ASSERT_TRUE(directory.ok()) << directory.status();
    EXPECT_EQ((*directory)->files().size(), source.files.size());
    EXPECT_EQ((*directory)->source().indexed, max_file_bytes < 1 << 30);
    const auto loaded = MakeStore(layout_);
    ASSERT_TRUE(ImportWeights(**directory, *loaded, pool_, NoProgress).ok());
    for (const BlockLayout& block : layout_.blocks) {
      EXPECT_TRUE(std::ranges::equal(loaded->block(block.block).hi, store_->block(block.block).hi));
      EXPECT_TRUE(std::ranges::equal(loaded->block(block.block).lo, store_->block(block.block).lo));
    }
    for (const WeightFile& file : source.files) {
      int64_t bytes = 0;
      for (const WeightEntry& entry : file.entries) bytes += entry.bytes();
      EXPECT_TRUE(bytes <= max_file_bytes || file.entries.size() == 1);
    }
  }
}

TEST_F(ExportTest, AskedTypeIsWrittenAndNamedInTheConfig) {
  ASSERT_TRUE(Export(Source(WeightType::kBFloat16), {.type = WeightType::kFloat32}).ok());
  for (const auto& [name, tensor] : TensorsOf(out())) {
    EXPECT_TRUE(absl::StartsWith(tensor, "F32 ")) << name;
  }
  EXPECT_EQ(json::parse(ReadFileOrDie(out() + "/config.json"))["torch_dtype"], "float32");
  fs::remove_all(out());
  // The type that the config names already: verbatim.
  ASSERT_TRUE(Export(Source(WeightType::kFloat32), {.type = WeightType::kBFloat16}).ok());
  EXPECT_EQ(ReadFileOrDie(out() + "/config.json"), TinyConfig().dump(2));
}

TEST_F(ExportTest, NonFiniteWeightsAreRefusedAndNothingIsLeft) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const auto& [value, type] :
       {std::pair{std::nanf(""), WeightType::kFloat32}, std::pair{infinity, WeightType::kBFloat16},
        std::pair{70000.0f, WeightType::kFloat16}}) {
    SetWeight(value);
    const absl::Status status = Export(Source(type));
    EXPECT_EQ(ReasonOf(status), reason::kNonFinite) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("element 3 of model.layers.0.input_layernorm.weight"));
    EXPECT_THAT(NamesIn(temp_.Path("place")), ElementsAre());
  }
  SetWeight(70000);
  EXPECT_TRUE(Export(Source(WeightType::kBFloat16)).ok());
}

TEST_F(ExportTest, CancelledExportLeavesNothing) {
  const absl::Status status =
      ExportModel(*store_, Source(WeightType::kFloat32, 100'000), out(), {}, pool_,
                  [](int64_t done, int64_t total) {
                    return done < total / 2 ? absl::OkStatus() : absl::CancelledError("stop");
                  });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(NamesIn(temp_.Path("place")), ElementsAre());
}

TEST_F(ExportTest, ExistingDestinationIsRefusedUntouched) {
  fs::create_directories(out());
  WriteFileOrDie(out() + "/precious", "1");
  const absl::Status status = Export(Source(WeightType::kFloat32));
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReasonOf(status), reason::kOutputExists);
  EXPECT_THAT(NamesIn(out()), ElementsAre("precious"));
  EXPECT_THAT(NamesIn(temp_.Path("place")), ElementsAre("out"));
}

TEST_F(ExportTest, ReplacingLeavesOnlyTheNewSet) {
  const ExportOptions replace = {.existing = Existing::kReplace};
  const ExportSource one = Source(WeightType::kFloat32),
                     many = Source(WeightType::kFloat32, 100'000);
  for (const ExportSource* source : {&many, &one, &many}) {
    ASSERT_TRUE(Export(*source, replace).ok());
    EXPECT_EQ(NamesIn(out()).size(), source->files.size() + (source->indexed ? 2 : 1));
    EXPECT_TRUE(ModelDirectory::Open(out()).ok());
    EXPECT_THAT(NamesIn(temp_.Path("place")), ElementsAre("out"));
  }
}

TEST_F(ExportTest, OnlyADirectoryOfPlainFilesIsReplaced) {
  const ExportOptions replace = {.existing = Existing::kReplace};
  const auto refused = [&] {
    const absl::Status status = Export(Source(WeightType::kFloat32), replace);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_EQ(ReasonOf(status), reason::kOutputExists);
  };
  fs::create_directories(out() + "/sub");
  refused();
  EXPECT_TRUE(fs::exists(out() + "/sub"));
  fs::remove_all(out());
  WriteFileOrDie(out(), "file");
  refused();
  EXPECT_EQ(ReadFileOrDie(out()), "file");
  fs::remove(out());
  fs::create_directories(temp_.Path("target"));
  fs::create_symlink("../target", out());
  refused();
  EXPECT_THAT(NamesIn(temp_.Path("target")), ElementsAre());
}

TEST_F(ExportTest, BadDestinationsAreRefused) {
  const auto code = [&](const std::string& destination) {
    return ExportModel(*store_, Source(WeightType::kFloat32), destination, {}, pool_, NoProgress)
        .code();
  };
  EXPECT_EQ(code(""), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("/"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(temp_.Path("place/..")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(temp_.Path(std::string(201, 'a'))), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(temp_.Path("missing/out")), absl::StatusCode::kNotFound);
}

TEST_F(ExportTest, TheImportedModelIsNeverReplaced) {
  WriteModel(temp_.Path("model"), TinyConfig(), MakeFiles(spec_, WeightType::kFloat32, 1));
  const auto before = ReadTree(temp_.Path("model"));
  const auto directory = ModelDirectory::Open(temp_.Path("model"));
  ASSERT_TRUE(directory.ok());
  const absl::Status status =
      ExportModel(*store_, (*directory)->source(), temp_.Path("place/../model/"),
                  {.existing = Existing::kReplace}, pool_, NoProgress);
  EXPECT_EQ(ReasonOf(status), reason::kOutputExists);
  EXPECT_TRUE(ReadTree(temp_.Path("model")) == before);
}

TEST_F(ExportTest, StagingOfALivingProcessIsLeftAlone) {
  auto living = StagedDirectory::Create(out(), Existing::kRefuse);
  ASSERT_TRUE(living.ok());
  const std::string dead = temp_.Path("place/.out.staging-0123456789abcdef");
  fs::create_directories(dead + "/source");
  fs::create_directories(temp_.Path("place/.other.staging-0123456789abcdef"));
  ASSERT_EQ(NamesIn(temp_.Path("place")).size(), 3u);
  ASSERT_TRUE(Export(Source(WeightType::kFloat32)).ok());
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_EQ(NamesIn(temp_.Path("place")).size(), 3u);  // out, the living one, the other's
  // Too late for the living one.
  EXPECT_EQ(living->Commit().code(), absl::StatusCode::kAlreadyExists);
}

// A child exports over an old export again and again until it is killed, at a random moment.
// Old and new differ in files and in values.
TEST_F(ExportTest, KilledExportLeavesTheOldOrTheNewDirectory) {
  const ExportOptions replace = {.existing = Existing::kReplace};
  const ExportSource sources[] = {Source(WeightType::kFloat32),
                                  Source(WeightType::kBFloat16, 20'000)};
  std::map<std::string, std::string> wanted[2];
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(Export(sources[i], replace).ok());
    wanted[i] = ReadTree(out());
  }
  std::mt19937 random(20);
  int seen[2] = {0, 0};
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      // Threads are not inherited: the child needs a pool of its own.
      ThreadPool pool(1);
      for (int i = 0;; ++i) {
        const absl::Status status =
            ExportModel(*store_, sources[i % 2], out(), replace, pool, NoProgress);
        if (!status.ok()) _exit(1);
      }
    }
    usleep(random() % 60'000);
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the export failed by itself";
    const auto found = ReadTree(out());
    ASSERT_TRUE(found == wanted[0] || found == wanted[1]) << "round " << round;
    ++seen[found == wanted[0] ? 0 : 1];
  }
  EXPECT_EQ(seen[0] + seen[1], 20);
  // The next export clears what the killed ones left.
  ASSERT_TRUE(Export(sources[0], replace).ok());
  EXPECT_THAT(NamesIn(temp_.Path("place")), ElementsAre("out"));
}

}  // namespace
}  // namespace penstock
