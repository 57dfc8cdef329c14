#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <csignal>
#include <filesystem>
#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/memory/planes.h"
#include "engine/train/checkpoint.h"
#include "engine/train/file_writer.h"
#include "engine/train/import.h"
#include "engine/train/model_directory.h"
#include "engine/train/random_init.h"
#include "engine/train/staged_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weights_testing.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using testing::FindMade;
using ::testing::HasSubstr;
using testing::MadeFile;
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

// A tied BF16 model in three shards, with a stored copy of the head and a tokenizer.
class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    json config = TinyConfig();
    std::vector<MadeFile> files = MakeFiles(SpecOf(config), WeightType::kBFloat16, 3);
    FindMade(files, "lm_head.weight").bytes = FindMade(files, "model.embed_tokens.weight").bytes;
    config["tie_word_embeddings"] = true;
    WriteModel(temp_.Path("model"), config, files);
    WriteFileOrDie(temp_.Path("model/tokenizer.json"), "{ }\n");
    auto directory = ModelDirectory::Open(temp_.Path("model"));
    ASSERT_TRUE(directory.ok()) << directory.status();
    directory_ = *std::move(directory);
    store_ = MakeStore(directory_->layout());
    ASSERT_TRUE(ImportWeights(*directory_, *store_, pool_, NoProgress).ok());
    info_.step = 12;
    info_.tokens = 34567;
    info_.updates_applied = 11;
    info_.nonfinite_streak = 2;
    info_.loss = 2.34375;
    info_.evaluation_loss = 2.5;
    info_.best = {.step = 10, .loss = 2.4375};
    info_.code_version = "0.1.0";
    info_.facts.identity = {{"job", "jobs/a \"quoted\""}, {"note", "\xff is no UTF-8"}};
  }

  std::string path() const { return temp_.Path("checkpoint"); }
  absl::Status Write() {
    return WriteCheckpoint(*store_, directory_->source(), info_, path(), pool_, NoProgress)
        .status();
  }
  // A refusal is CHECKPOINT_CORRUPT and names `file`.
  void ExpectCorrupt(const std::string& file, Verification verification) {
    const absl::Status status = OpenCheckpoint(path(), verification).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << file << ": " << status;
    EXPECT_EQ(ReasonOf(status), reason::kCheckpointCorrupt);
    EXPECT_THAT(std::string(status.message()), HasSubstr(file));
  }
  json Manifest() const { return json::parse(ReadFileOrDie(path() + "/manifest.json")); }
  // With the checksum that its content wants: what is refused is refused for its content.
  void SetManifest(const json& manifest) {
    WriteFileOrDie(path() + "/manifest.json", testing::WithChecksum(manifest));
  }
  // Values that no narrower type holds.
  void Train() { InitializeWeights(directory_->spec(), 5, *store_, pool_); }

  TempDir temp_;
  ThreadPool pool_{2};
  std::unique_ptr<ModelDirectory> directory_;
  std::unique_ptr<HostStore> store_;
  CheckpointInfo info_;
};

TEST_F(CheckpointTest, KeepsWeightsBitForBitAndWhereTheRunStood) {
  Train();
  // Bits that no training makes, to show that nothing is touched on the way.
  const SplitValue nan = Split(std::bit_cast<float>(0x7fc12345u));
  store_->block(BlockId{0}).hi[0] = nan.hi;
  store_->block(BlockId{0}).lo[0] = nan.lo;
  for (const BlockLayout& block : directory_->layout().blocks) {
    for (const Parameter& parameter : block.parameters) {
      for (int64_t i = 0; i < parameter.size; ++i) {
        store_->block(block.block).m[parameter.offset + i] = static_cast<float>(i) / 3;
        store_->block(block.block).v[parameter.offset + i] = static_cast<float>(i) / 7;
      }
    }
  }
  ASSERT_TRUE(Write().ok());
  const auto checkpoint = OpenCheckpoint(path(), Verification::kHashes);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const CheckpointInfo& info = (*checkpoint)->info();
  EXPECT_EQ(info.step, 12);
  EXPECT_EQ(info.tokens, 34567);
  EXPECT_EQ(info.updates_applied, 11);
  EXPECT_EQ(info.nonfinite_streak, 2);
  EXPECT_EQ(info.loss, 2.34375);
  EXPECT_EQ(info.evaluation_loss, 2.5);
  ASSERT_TRUE(info.best.has_value());
  EXPECT_EQ(info.best->step, 10);
  EXPECT_EQ(info.best->loss, 2.4375);
  EXPECT_EQ(info.code_version, "0.1.0");
  EXPECT_EQ(info.facts.identity.at("job"), "jobs/a \"quoted\"");
  EXPECT_THAT(info.facts.identity.at("note"), HasSubstr("is no UTF-8"));

  const auto loaded = MakeStore((*checkpoint)->layout());
  ASSERT_TRUE(LoadCheckpoint(**checkpoint, *loaded, pool_, NoProgress).ok());
  for (const BlockLayout& block : directory_->layout().blocks) {
    EXPECT_TRUE(std::ranges::equal(loaded->block(block.block).hi, store_->block(block.block).hi));
    EXPECT_TRUE(std::ranges::equal(loaded->block(block.block).lo, store_->block(block.block).lo));
    EXPECT_TRUE(std::ranges::equal(loaded->block(block.block).m, store_->block(block.block).m));
    EXPECT_TRUE(std::ranges::equal(loaded->block(block.block).v, store_->block(block.block).v));
  }
  EXPECT_EQ(loaded->updates_applied, 11);
}

TEST_F(CheckpointTest, LossMayBeAbsentButNotNaN) {
  info_.loss.reset();
  ASSERT_TRUE(Write().ok());
  EXPECT_EQ((*OpenCheckpoint(path(), Verification::kSizes))->info().loss, std::nullopt);
  fs::remove_all(path());
  info_.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(Write().ok());
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(CheckpointTest, ExportNeedsNothingButTheCheckpoint) {
  ASSERT_TRUE(Write().ok());
  auto wanted = ReadTree(temp_.Path("model"));
  const auto tensors = TensorsOf(temp_.Path("model"));
  fs::remove_all(temp_.Path("model"));
  const absl::Status status = ExportCheckpoint(path(), temp_.Path("out"), {}, pool_, NoProgress);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(TensorsOf(temp_.Path("out")) == tensors);
  auto found = ReadTree(temp_.Path("out"));
  const std::string index = "model.safetensors.index.json";
  EXPECT_EQ(json::parse(found.at(index))["weight_map"],
            json::parse(wanted.at(index))["weight_map"]);
  found.erase(index);
  wanted.erase(index);
  EXPECT_TRUE(found == wanted);
}

TEST_F(CheckpointTest, ExportOfACheckpointIsTheExportOfItsStore) {
  Train();
  ASSERT_TRUE(Write().ok());
  for (const auto type : {std::optional<WeightType>(), std::optional(WeightType::kFloat32)}) {
    fs::remove_all(temp_.Path("a"));
    fs::remove_all(temp_.Path("b"));
    const ExportOptions options = {.type = type};
    ASSERT_TRUE(ExportCheckpoint(path(), temp_.Path("a"), options, pool_, NoProgress).ok());
    ASSERT_TRUE(
        ExportModel(*store_, directory_->source(), temp_.Path("b"), options, pool_, NoProgress)
            .ok());
    EXPECT_TRUE(ReadTree(temp_.Path("a")) == ReadTree(temp_.Path("b")));
  }
}

TEST_F(CheckpointTest, ExportRefusesTheModelAndTheCheckpointAsDestination) {
  ASSERT_TRUE(Write().ok());
  const ExportOptions replace = {.existing = Existing::kReplace};
  for (const std::string& destination : {temp_.Path("model"), path()}) {
    const auto before = ReadTree(destination);
    EXPECT_EQ(ReasonOf(ExportCheckpoint(path(), destination, replace, pool_, NoProgress)),
              reason::kOutputExists);
    EXPECT_TRUE(ReadTree(destination) == before);
  }
}

TEST_F(CheckpointTest, ExistingDestinationIsRefused) {
  ASSERT_TRUE(Write().ok());
  const auto before = ReadTree(path());
  EXPECT_EQ(ReasonOf(Write()), reason::kOutputExists);
  EXPECT_TRUE(ReadTree(path()) == before);
}

TEST_F(CheckpointTest, DirectoryWithoutManifestIsNoCheckpoint) {
  fs::create_directories(path());
  ExpectCorrupt("manifest.json", Verification::kSizes);
}

TEST_F(CheckpointTest, EveryMissingFileIsFound) {
  ASSERT_TRUE(Write().ok());
  for (const auto& [name, content] : ReadTree(path())) {
    fs::remove(path() + "/" + name);
    ExpectCorrupt(name, Verification::kSizes);
    WriteFileOrDie(path() + "/" + name, content);
  }
  EXPECT_TRUE(OpenCheckpoint(path(), Verification::kHashes).ok());
}

TEST_F(CheckpointTest, EveryTruncatedFileIsFound) {
  ASSERT_TRUE(Write().ok());
  for (const auto& [name, content] : ReadTree(path())) {
    WriteFileOrDie(path() + "/" + name, content.substr(0, content.size() / 2));
    ExpectCorrupt(name, Verification::kSizes);
    WriteFileOrDie(path() + "/" + name, content);
  }
}

TEST_F(CheckpointTest, EveryFlippedBitIsFoundByThoseWhoReadIt) {
  ASSERT_TRUE(Write().ok());
  const auto store = MakeStore(directory_->layout());
  for (const auto& [name, content] : ReadTree(path())) {
    std::string damaged = content;
    damaged[damaged.size() - 3] ^= 1;
    WriteFileOrDie(path() + "/" + name, damaged);
    ExpectCorrupt(name, Verification::kHashes);
    const auto opened = OpenCheckpoint(path(), Verification::kSizes);
    const absl::Status loaded = opened.ok() ? LoadCheckpoint(**opened, *store, pool_, NoProgress)
                                            : absl::Status(opened.status());
    EXPECT_EQ(ReasonOf(loaded), reason::kCheckpointCorrupt) << name;
    EXPECT_THAT(std::string(loaded.message()), HasSubstr(name));
    const bool moment = absl::StartsWith(name, "m-") || absl::StartsWith(name, "v-");
    EXPECT_EQ(ExportCheckpoint(path(), temp_.Path("out"), {}, pool_, NoProgress).ok(), moment)
        << name;
    fs::remove_all(temp_.Path("out"));
    WriteFileOrDie(path() + "/" + name, content);
  }
}

TEST_F(CheckpointTest, ManifestThatWasEditedIsRefused) {
  ASSERT_TRUE(Write().ok());
  json manifest = Manifest();
  manifest["step"] = 13;
  WriteFileOrDie(path() + "/manifest.json", manifest.dump(1));
  ExpectCorrupt("manifest_xxh3_64", Verification::kSizes);
}

TEST_F(CheckpointTest, VersionOneHasWeightsAlone) {
  ASSERT_TRUE(Write().ok());
  json manifest = Manifest();
  manifest["format_version"] = 1;
  for (const char* later : {"manifest_xxh3_64", "nonfinite_streak", "identity", "rounding"}) {
    manifest.erase(later);
  }
  json files = json::array();
  for (const json& file : manifest["files"]) {
    const std::string name = file["name"];
    if (name[0] == 'w' || name[0] == 's') files.push_back(file);
  }
  manifest["files"] = files;
  WriteFileOrDie(path() + "/manifest.json", manifest.dump());
  const auto opened = OpenCheckpoint(path(), Verification::kHashes);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_FALSE((*opened)->has_moments());
  EXPECT_TRUE(ExportCheckpoint(path(), temp_.Path("out"), {}, pool_, NoProgress).ok());
}

TEST_F(CheckpointTest, VersionTwoKnewOfNoLeftOutData) {
  ASSERT_TRUE(Write().ok());
  json manifest = Manifest();
  EXPECT_TRUE(manifest.contains("left_out_data_steps"));
  manifest["format_version"] = 2;
  manifest.erase("left_out_data_steps");
  manifest.erase("loss_memory");
  SetManifest(manifest);
  const auto opened = OpenCheckpoint(path(), Verification::kHashes);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->info().left_out_data_steps, 0);
  manifest["format_version"] = 3;
  SetManifest(manifest);
  ExpectCorrupt("left_out_data_steps", Verification::kSizes);
}

TEST_F(CheckpointTest, VersionThreeKnewOfNoMomentsButFloat32) {
  ASSERT_TRUE(Write().ok());
  json manifest = Manifest();
  EXPECT_EQ(manifest["optimizer_state"], "float32");
  manifest["format_version"] = 3;
  manifest.erase("optimizer_state");
  SetManifest(manifest);
  const auto opened = OpenCheckpoint(path(), Verification::kHashes);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->moment_type(), MomentType::kFloat32);
  manifest["format_version"] = 4;
  SetManifest(manifest);
  ExpectCorrupt("optimizer_state", Verification::kSizes);
}

// A store with moments of the type, every byte of them another.
std::unique_ptr<HostStore> StoreOf(const ModelLayout& layout, MomentType type) {
  auto store = *HostStore::Create(layout, StateOf(type), GradientPlane::kNone);
  store->updates_applied = 11;
  uint32_t next = 1;
  for (const BlockLayout& block : layout.blocks) {
    const BlockStore& planes = store->block(block.block);
    for (const std::span<std::byte> plane : {planes.small_m.values, planes.small_v.values,
                                             std::as_writable_bytes(planes.small_m.scales),
                                             std::as_writable_bytes(planes.small_v.scales)}) {
      for (std::byte& byte : plane) byte = static_cast<std::byte>((next = next * 69069 + 1) >> 24);
    }
  }
  return store;
}

TEST_F(CheckpointTest, KeepsMomentsOfEveryTypeBitForBit) {
  for (const MomentType type : {MomentType::kBfloat16, MomentType::kInt8Blocks}) {
    SCOPED_TRACE(MomentTypeName(type));
    store_ = StoreOf(directory_->layout(), type);
    ASSERT_TRUE(ImportWeights(*directory_, *store_, pool_, NoProgress).ok());
    fs::remove_all(path());
    ASSERT_TRUE(Write().ok());
    EXPECT_EQ(Manifest()["optimizer_state"], MomentTypeName(type));
    const auto opened = OpenCheckpoint(path(), Verification::kHashes);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ((*opened)->moment_type(), type);
    int64_t bytes = 0;
    for (const CheckpointFile& file : (*opened)->files()) {
      for (const StoredTensor& tensor : file.tensors) bytes += tensor.bytes;
    }
    EXPECT_EQ(bytes, CheckpointBytes(*store_));
    const auto loaded =
        *HostStore::Create(directory_->layout(), StateOf(type), GradientPlane::kNone);
    ASSERT_TRUE(LoadCheckpoint(**opened, *loaded, pool_, NoProgress).ok());
    for (const BlockLayout& block : directory_->layout().blocks) {
      const BlockStore &a = store_->block(block.block), &b = loaded->block(block.block);
      EXPECT_TRUE(std::ranges::equal(a.hi, b.hi) && std::ranges::equal(a.lo, b.lo));
      for (const Parameter& parameter : block.parameters) {
        for (const CheckpointPlane plane : CheckpointPlanes(type)) {
          if (plane == CheckpointPlane::kWeights) continue;
          EXPECT_TRUE(std::ranges::equal(MomentMemory(*store_, plane, block.block, parameter),
                                         MomentMemory(*loaded, plane, block.block, parameter)))
              << CheckpointPlaneName(plane) << " " << parameter.name;
        }
      }
    }
    EXPECT_EQ(loaded->updates_applied, 11);
    EXPECT_TRUE(ExportCheckpoint(path(), temp_.Path("out"), {}, pool_, NoProgress).ok());
    fs::remove_all(temp_.Path("out"));
  }
}

TEST_F(CheckpointTest, MomentsOfAnotherTypeAreRefusedWithBothNamed) {
  ASSERT_TRUE(Write().ok());
  const auto opened = OpenCheckpoint(path(), Verification::kSizes);
  ASSERT_TRUE(opened.ok());
  const auto store = StoreOf(directory_->layout(), MomentType::kInt8Blocks);
  const absl::Status status = LoadCheckpoint(**opened, *store, pool_, NoProgress);
  EXPECT_EQ(ReasonOf(status), reason::kCheckpointMismatch);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("float32"), HasSubstr("int8_blocks"),
                                                   HasSubstr("precision.optimizer_state")));
  // A manifest that lies about it is not believed: the files say otherwise.
  json manifest = Manifest();
  manifest["optimizer_state"] = "bfloat16";
  SetManifest(manifest);
  ExpectCorrupt("is F32", Verification::kSizes);
}

// Codes without their scales, and scales without codes.
TEST_F(CheckpointTest, EightBitMomentsWithoutTheirScalesAreNoCheckpoint) {
  store_ = StoreOf(directory_->layout(), MomentType::kInt8Blocks);
  ASSERT_TRUE(Write().ok());
  const json good = Manifest();
  for (const std::string left_out : {"m_scales-", "v_scales-", "v-"}) {
    json manifest = good;
    json files = json::array();
    for (const json& file : good["files"]) {
      if (!absl::StartsWith(file["name"].get<std::string>(), left_out)) files.push_back(file);
    }
    manifest["files"] = files;
    SetManifest(manifest);
    ExpectCorrupt(left_out + "*", Verification::kSizes);
  }
}

TEST_F(CheckpointTest, HalfOfTheMomentsIsNoCheckpoint) {
  ASSERT_TRUE(Write().ok());
  json manifest = Manifest();
  json files = json::array();
  for (const json& file : manifest["files"]) {
    if (file["name"].get<std::string>()[0] != 'v') files.push_back(file);
  }
  manifest["files"] = files;
  SetManifest(manifest);
  ExpectCorrupt("v-*", Verification::kSizes);
}

TEST_F(CheckpointTest, FullDiskIsNamedAndLeavesNothing) {
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_IGN);  // so that writing beyond the limit fails with EFBIG
  const struct rlimit small = {.rlim_cur = 4096, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = Write();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(ReasonOf(status), reason::kDiskInsufficient) << status;
  int left = 0;
  for (const auto& entry : fs::directory_iterator(temp_.path())) {
    left += entry.path().filename() != "model";
  }
  EXPECT_EQ(left, 0);
}

TEST_F(CheckpointTest, SaysHowManyBytesItHas) {
  const absl::StatusOr<WrittenCheckpoint> written =
      WriteCheckpoint(*store_, directory_->source(), info_, path(), pool_, NoProgress);
  ASSERT_TRUE(written.ok());
  int64_t found = 0;
  for (const auto& [name, content] : ReadTree(path())) {
    found += static_cast<int64_t>(content.size());
  }
  EXPECT_EQ(written->bytes, found);
}

// A descriptor a file while one is open, and 1024 are usual.
TEST_F(CheckpointTest, LargeModelsHaveLargeFilesNotManyFiles) {
  json config = TinyConfig();
  config["hidden_size"] = 16384;
  config["intermediate_size"] = 53248;
  config["num_attention_heads"] = 128;
  config["num_key_value_heads"] = 8;
  for (const int64_t layers : {2, 126, 400}) {
    config["num_hidden_layers"] = layers;
    const ModelLayout layout = MakeLayout(SpecOf(config));
    const std::vector<WeightFile> files = CutForCheckpoint(layout);
    EXPECT_LE(files.size(), 200u) << layout.parameter_count;
    EXPECT_GE(files.size(), 8u);
  }
}

TEST_F(CheckpointTest, ParentsOfADirectoryAreMadeToo) {
  const std::string deep = temp_.Path("a/b/c");
  ASSERT_TRUE(MakeDirectories(deep).ok());
  EXPECT_TRUE(fs::is_directory(deep));
  EXPECT_TRUE(MakeDirectories(deep).ok());
  WriteFileOrDie(temp_.Path("file"), "");
  EXPECT_EQ(ReasonOf(MakeDirectories(temp_.Path("file/below"))), reason::kIoError);
}

TEST_F(CheckpointTest, RoomIsAskedForBeforeAnythingIsWritten) {
  auto staged = StagedDirectory::Create(path(), Existing::kRefuse);
  ASSERT_TRUE(staged.ok());
  EXPECT_TRUE(staged->CheckRoom(1).ok());
  const absl::Status status = staged->CheckRoom(int64_t{1} << 62);
  EXPECT_EQ(ReasonOf(status), reason::kDiskInsufficient);
  EXPECT_EQ(MetadataOf(status)["needed_bytes"], absl::StrCat(int64_t{1} << 62));
}

TEST_F(CheckpointTest, CraftedManifestsAreRefused) {
  ASSERT_TRUE(Write().ok());
  const json good = Manifest();
  const auto corrupt = [&](const std::string& pointer, const json& value) {
    json manifest = good;
    manifest[json::json_pointer(pointer)] = value;
    SetManifest(manifest);
    ExpectCorrupt("", Verification::kSizes);
  };
  corrupt("/format", "other");
  corrupt("/format_version", "1");
  corrupt("/step", -1);
  corrupt("/tokens", 1.5);
  corrupt("/loss", "NaN");
  corrupt("/identity", {1});
  corrupt("/rounding", {{"key", 1}});
  corrupt("/optimizer_state", "float16");
  corrupt("/optimizer_state", 32);
  corrupt("/step", std::numeric_limits<int64_t>::max());
  corrupt("/tokens", std::numeric_limits<int64_t>::max());
  corrupt("/updates_applied", 13);
  corrupt("/nonfinite_streak", -1);
  corrupt("/nonfinite_streak", 13);
  corrupt("/evaluation_due", 1);
  corrupt("/evaluation_loss", "low");
  corrupt("/best_evaluation", 1);
  corrupt("/best_evaluation/step", 13);
  corrupt("/best_evaluation/loss", nullptr);
  corrupt("/files", json::object());
  corrupt("/files", json::array());
  corrupt("/files/0", 1);
  corrupt("/files/0/bytes", int64_t{1} << 50);
  corrupt("/files/0/xxh3_64", "short");
  corrupt("/files/0/name", "../model/config.json");
  corrupt("/files/0/name", "/etc/passwd");
  corrupt("/files/0/name", good["files"][1]["name"]);
  corrupt("/source", nullptr);
  corrupt("/source/side_files/0", "../../evil");
  corrupt("/source/side_files/0", "not_there.json");
  corrupt("/source/files/0/name", "../evil.safetensors");
  corrupt("/source/files/0/entries/0/type", "I8");
  corrupt("/source/files/0/entries/0/name", "model.ghost.weight");
  SetManifest(good);
  EXPECT_TRUE(OpenCheckpoint(path(), Verification::kHashes).ok());
}

TEST_F(CheckpointTest, LaterFormatIsNamedAsSuch) {
  ASSERT_TRUE(Write().ok());
  json manifest = Manifest();
  manifest["format_version"] = 5;
  SetManifest(manifest);
  const absl::Status status = OpenCheckpoint(path(), Verification::kSizes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("format_version is 5"));
}

TEST_F(CheckpointTest, CancelledWriteLeavesNothing) {
  const absl::Status status =
      WriteCheckpoint(*store_, directory_->source(), info_, path(), pool_, [](int64_t, int64_t) {
        return absl::CancelledError("stop");
      }).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  int left = 0;
  for (const auto& entry : fs::directory_iterator(temp_.path())) {
    left += entry.path().filename() != "model";
  }
  EXPECT_EQ(left, 0);
}

}  // namespace
}  // namespace penstock
