// Runs that sign what they save, and what is found when somebody changes it.
#include "engine/audit/verify.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/status.h"
#include "engine/engine.h"
#include "engine/provenance/provenance.h"
#include "engine/provenance/sha256.h"
#include "engine/provenance/signing_key.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/train/train_testing.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::ReadFileOrDie;
using testing::ReadTree;
using testing::RecordingObserver;
using ::testing::SizeIs;
using testing::SomeText;
using testing::TempDir;
using testing::TinyTrainConfig;
using testing::WriteFileOrDie;

// "what: text" of all findings of a verdict.
std::vector<std::string> Found(const VerifyReport& report, Verdict verdict) {
  std::vector<std::string> found;
  for (const Finding& finding : report.findings) {
    if (finding.verdict == verdict) found.push_back(finding.what + ": " + finding.text);
  }
  return found;
}

class VerifyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteFileOrDie(dir_.Path("data.txt"), SomeText(300));
    key_ = SigningKey::LoadOrCreate(KeyPath())->public_key();
  }

  std::string KeyPath() const { return dir_.Path("signing.key"); }

  TrainConfig Config(const std::string& run, int64_t attempt = 1) {
    fs::create_directories(dir_.Path(run));
    TrainConfig config = TinyTrainConfig(dir_.Path(run), dir_.Path("data.txt"));
    config.provenance = {.job = "jobs/" + run,
                         .attempt = attempt,
                         .spec = "{\"seed\": \"1\"}",
                         .signing_key_path = KeyPath()};
    return config;
  }

  RecordingObserver MustTrain(const TrainConfig& config, int64_t stop_after = INT64_MAX) {
    RecordingObserver observer;
    observer.stop_after = stop_after;
    const auto summary = Train(config, observer);
    EXPECT_TRUE(summary.ok()) << summary.status();
    return observer;
  }

  // Of the run that `config` is, trained to its end: 4 steps.
  std::string Checkpoint(const std::string& run, int64_t step) const {
    return absl::StrCat(dir_.Path(run), "/checkpoints/", step);
  }
  std::string MakeCheckpoint() {
    MustTrain(Config("a"));
    return Checkpoint("a", 4);
  }

  absl::StatusOr<VerifyReport> Verify(const std::string& path, const std::string& trusted = "") {
    return VerifyDirectory(path, {.trusted_key = trusted, .pool = pool_});
  }
  VerifyReport MustVerify(const std::string& path, const std::string& trusted = "") {
    auto report = Verify(path, trusted);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *std::move(report) : VerifyReport();
  }

  static void FlipBit(const std::string& file, size_t at) {
    std::string bytes = ReadFileOrDie(file);
    bytes.at(at) = static_cast<char>(bytes.at(at) ^ 1);
    WriteFileOrDie(file, bytes);
  }

  TempDir dir_;
  ThreadPool pool_{2};
  std::string key_;
};

TEST_F(VerifyTest, ACheckpointIsWhatItsKeySigned) {
  const std::string checkpoint = MakeCheckpoint();
  const VerifyReport report = MustVerify(checkpoint, key_);
  EXPECT_THAT(Found(report, Verdict::kWrong), IsEmpty());
  EXPECT_EQ(report.job, "jobs/a");
  EXPECT_EQ(report.step, 4);
  EXPECT_EQ(report.public_key, key_);
  EXPECT_EQ(report.provenance_sha256, Sha256Of(ReadFileOrDie(checkpoint + "/provenance.json")));
  const auto proven = Found(report, Verdict::kProven);
  ASSERT_THAT(proven, SizeIs(5));
  EXPECT_THAT(proven[0], HasSubstr("is what key"));
  EXPECT_THAT(proven[1], HasSubstr("the key that was named"));
  EXPECT_THAT(proven[2], HasSubstr("files"));
  EXPECT_THAT(proven[3], HasSubstr("spec"));
  EXPECT_THAT(proven[4], HasSubstr("random weights"));
  EXPECT_THAT(Found(report, Verdict::kOpen), SizeIs(1)) << "the data";
  // Without a key it is not known whose it is, and nothing is wrong.
  const auto open = Found(MustVerify(checkpoint), Verdict::kOpen);
  ASSERT_THAT(open, SizeIs(2));
  EXPECT_THAT(open[0], HasSubstr("is not known here"));
}

TEST_F(VerifyTest, OneFlippedBitInAnyFileIsFound) {
  const std::string checkpoint = MakeCheckpoint();
  for (const auto& [name, content] : ReadTree(checkpoint)) {
    SCOPED_TRACE(name);
    const std::string file = checkpoint + "/" + name;
    for (const size_t at : {size_t{0}, content.size() / 2, content.size() - 1}) {
      FlipBit(file, at);
      const auto report = Verify(checkpoint);
      if (report.ok()) {
        EXPECT_TRUE(report->any(Verdict::kWrong)) << at;
      } else {
        EXPECT_EQ(name, kProvenanceName) << report.status();
        EXPECT_THAT(std::string(report.status().message()), HasSubstr(name));
      }
      WriteFileOrDie(file, content);
    }
  }
  EXPECT_FALSE(MustVerify(checkpoint).any(Verdict::kWrong)) << "all is as it was";
}

TEST_F(VerifyTest, AnEditedTextWithTheOldSignatureIsFound) {
  const std::string checkpoint = MakeCheckpoint();
  const std::string file = checkpoint + "/provenance.json";
  const std::string text = ReadFileOrDie(file);
  // Canonical still, so it is the signature that tells.
  WriteFileOrDie(file, absl::StrReplaceAll(text, {{"\"attempt\": 1,", "\"attempt\": 2,"}}));
  auto wrong = Found(MustVerify(checkpoint), Verdict::kWrong);
  ASSERT_THAT(wrong, SizeIs(1));
  EXPECT_THAT(wrong[0], HasSubstr("is not the signature"));
  // The manifest, and the hash of it, and no signature.
  WriteFileOrDie(file, text);
  fs::remove(checkpoint + "/provenance.sig");
  wrong = Found(MustVerify(checkpoint), Verdict::kWrong);
  ASSERT_THAT(wrong, SizeIs(1));
  EXPECT_THAT(wrong[0], HasSubstr("provenance.sig cannot be read"));
}

TEST_F(VerifyTest, MissingExtraAndForeignFilesAreNamed) {
  const std::string checkpoint = MakeCheckpoint();
  fs::rename(checkpoint + "/v-00001.safetensors", dir_.Path("away"));
  auto wrong = Found(MustVerify(checkpoint), Verdict::kWrong);
  ASSERT_THAT(wrong, SizeIs(1));
  EXPECT_THAT(wrong[0], HasSubstr("v-00001.safetensors"));
  // A link to the very same bytes.
  fs::create_symlink(dir_.Path("away"), checkpoint + "/v-00001.safetensors");
  wrong = Found(MustVerify(checkpoint), Verdict::kWrong);
  ASSERT_THAT(wrong, SizeIs(2));
  EXPECT_THAT(wrong[1], HasSubstr("symbolic link"));
  fs::remove(checkpoint + "/v-00001.safetensors");
  fs::rename(dir_.Path("away"), checkpoint + "/v-00001.safetensors");
  for (const char* extra : {"/note.txt", "/source/extra.json"}) {
    WriteFileOrDie(checkpoint + extra, "x");
    wrong = Found(MustVerify(checkpoint), Verdict::kWrong);
    ASSERT_THAT(wrong, SizeIs(1));
    EXPECT_THAT(wrong[0], HasSubstr(absl::StrCat(extra, " is not named")));
    fs::remove(checkpoint + extra);
  }
}

TEST_F(VerifyTest, AnotherKeyIsNotTheOneThatWasNamed) {
  const std::string checkpoint = MakeCheckpoint();
  const std::string other = SigningKey::LoadOrCreate(dir_.Path("other.key"))->public_key();
  auto wrong = Found(MustVerify(checkpoint, other), Verdict::kWrong);
  ASSERT_THAT(wrong, SizeIs(1));
  EXPECT_THAT(wrong[0], HasSubstr(key_));
  // Somebody changes the text and signs it with a key of their own.
  const std::string file = checkpoint + "/provenance.json";
  auto forged = ParseProvenance(ReadFileOrDie(file), file);
  ASSERT_TRUE(forged.ok());
  forged->public_key = other;
  forged->job = "jobs/forged";
  const std::string text = ProvenanceText(*forged);
  WriteFileOrDie(file, text);
  WriteFileOrDie(checkpoint + "/provenance.sig",
                 SigningKey::Load(dir_.Path("other.key"))->Sign(text));
  EXPECT_FALSE(MustVerify(checkpoint).any(Verdict::kWrong)) << "it agrees with itself";
  EXPECT_TRUE(MustVerify(checkpoint, key_).any(Verdict::kWrong));
}

TEST_F(VerifyTest, WhatNobodySignedIsNotProven) {
  TrainConfig config = Config("a");
  config.provenance.signing_key_path.clear();
  MustTrain(config);
  EXPECT_FALSE(fs::exists(Checkpoint("a", 4) + "/provenance.sig"));
  const VerifyReport report = MustVerify(Checkpoint("a", 4));
  EXPECT_FALSE(report.any(Verdict::kWrong));
  EXPECT_THAT(Found(report, Verdict::kOpen).at(0), HasSubstr("nobody has signed"));
  EXPECT_TRUE(MustVerify(Checkpoint("a", 4), key_).any(Verdict::kWrong));
}

TEST_F(VerifyTest, WhatCannotBeCheckedIsRefusedByName) {
  EXPECT_EQ(Verify(dir_.Path("nothing")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(Verify(dir_.path()).status()), reason::kCheckpointCorrupt);
  const std::string checkpoint = MakeCheckpoint();
  const std::string file = checkpoint + "/provenance.json";
  const std::string text = ReadFileOrDie(file);
  WriteFileOrDie(file,
                 absl::StrReplaceAll(text, {{"\"format_version\": 1", "\"format_version\": 9"}}));
  EXPECT_EQ(ReasonOf(Verify(checkpoint).status()), reason::kFeatureUnsupported);
  WriteFileOrDie(file, std::string(1'000'000, '['));
  EXPECT_EQ(ReasonOf(Verify(checkpoint).status()), reason::kCheckpointCorrupt);
  fs::resize_file(file, kMaxProvenanceBytes + 1);
  EXPECT_THAT(std::string(Verify(checkpoint).status().message()), HasSubstr("at most"));
  fs::remove(file);
  fs::create_symlink(dir_.Path("data.txt"), file);
  EXPECT_EQ(ReasonOf(Verify(checkpoint).status()), reason::kCheckpointCorrupt);
  // Names that lead out of the directory.
  fs::remove(file);
  auto hostile = ParseProvenance(text, file);
  hostile->files.push_back({.name = "../../data.txt", .bytes = 300, .sha256 = Sha256Of("x")});
  hostile->files.push_back({.name = "/etc/passwd", .bytes = 300, .sha256 = Sha256Of("x")});
  WriteFileOrDie(file, ProvenanceText(*hostile));
  std::string all;
  for (const std::string& wrong : Found(MustVerify(checkpoint), Verdict::kWrong))
    all += wrong + "\n";
  EXPECT_THAT(all, HasSubstr("../../data.txt"));
  EXPECT_THAT(all, HasSubstr("/etc/passwd"));
  EXPECT_THAT(all, Not(HasSubstr("has SHA-256"))) << "nothing outside is read";
}

// base model -> jobs/a attempt 1 -> attempt 2 -> jobs/fork -> its export.
class ChainTest : public VerifyTest {
 protected:
  void SetUp() override {
    VerifyTest::SetUp();
    TrainConfig base = Config("base");
    base.output_directory = Model();
    MustTrain(base);
    TrainConfig first = FromModel("a", 1);
    MustTrain(first, 2);
    TrainConfig second = FromModel("a", 2);
    EXPECT_EQ(MustTrain(second).resumed.at(0).step, 2);
    TrainConfig fork = FromModel("fork", 1);
    fork.start_checkpoint = Checkpoint("a", 4);
    fork.schedule.max_steps = 6;
    MustTrain(fork);
    ExportConfig exporting{
        .checkpoint_directory = Checkpoint("fork", 6),
        .output_directory = dir_.Path("exported"),
        .export_element = {},
        .threads = 1,
        .provenance = {
            .job = "jobs/export", .attempt = 1, .spec = "{}", .signing_key_path = KeyPath()}};
    RecordingObserver observer;
    const absl::Status exported = RunExport(exporting, observer);
    ASSERT_TRUE(exported.ok()) << exported;
  }

  std::string Model() const { return dir_.Path("model"); }
  TrainConfig FromModel(const std::string& run, int64_t attempt) {
    TrainConfig config = Config(run, attempt);
    config.model = ModelFromDirectory{Model()};
    return config;
  }
  static Provenance Read(const std::string& directory) {
    const std::string file = directory + "/provenance.json";
    auto provenance = ParseProvenance(ReadFileOrDie(file), file);
    EXPECT_TRUE(provenance.ok()) << provenance.status();
    return *provenance;
  }
};

TEST_F(ChainTest, EachNamesTheOneBeforeItAndTheBaseModel) {
  EXPECT_FALSE(Read(Checkpoint("a", 2)).parent.has_value());
  const struct {
    std::string child, parent, name;
  } links[] = {{Checkpoint("a", 4), Checkpoint("a", 2), "jobs/a/checkpoints/2"},
               {Checkpoint("fork", 6), Checkpoint("a", 4), "jobs/a/checkpoints/4"},
               {dir_.Path("exported"), Checkpoint("fork", 6), "jobs/fork/checkpoints/6"},
               {Model(), Checkpoint("base", 4), "jobs/base/checkpoints/4"}};
  for (const auto& link : links) {
    const Provenance child = Read(link.child);
    ASSERT_TRUE(child.parent.has_value()) << link.child;
    EXPECT_EQ(child.parent->name, link.name);
    EXPECT_EQ(child.parent->path, link.parent);
    EXPECT_EQ(child.parent->provenance_sha256,
              Sha256Of(ReadFileOrDie(link.parent + "/provenance.json")));
  }
  for (const std::string& directory :
       {Checkpoint("a", 2), Checkpoint("a", 4), Checkpoint("fork", 6), dir_.Path("exported")}) {
    const Provenance provenance = Read(directory);
    ASSERT_TRUE(provenance.model.has_value()) << directory;
    EXPECT_EQ(provenance.model->path, Model());
    ASSERT_THAT(provenance.model->files, SizeIs(2));
    EXPECT_EQ(provenance.model->files[1].sha256,
              Sha256Of(ReadFileOrDie(Model() + "/model.safetensors")));
    ASSERT_TRUE(provenance.data.has_value());
    EXPECT_THAT(provenance.data->training, HasSubstr("documents"));
    EXPECT_TRUE(fs::exists(dir_.Path(absl::StrContains(directory, "/a/") ? "a" : "fork") +
                           "/cache/" + provenance.data->sources.at(0).token_cache + ".tokens"));
  }
}

TEST_F(ChainTest, IsProvenAsFarAsItIsHere) {
  VerifyReport report = MustVerify(dir_.Path("exported"), key_);
  EXPECT_THAT(Found(report, Verdict::kWrong), IsEmpty());
  EXPECT_EQ(report.subject, "export");
  std::string proven;
  for (const std::string& line : Found(report, Verdict::kProven)) proven += line + "\n";
  for (const char* name : {"jobs/fork/checkpoints/6, which", "jobs/a/checkpoints/4, which",
                           "jobs/a/checkpoints/2, which", "files of base model"}) {
    EXPECT_THAT(proven, HasSubstr(name));
  }
  // A parent that is gone is not proven, and not wrong.
  fs::remove_all(Checkpoint("a", 2));
  report = MustVerify(dir_.Path("exported"), key_);
  EXPECT_FALSE(report.any(Verdict::kWrong));
  std::string open;
  for (const std::string& line : Found(report, Verdict::kOpen)) open += line + "\n";
  EXPECT_THAT(open, HasSubstr("jobs/a/checkpoints/2, which this came from, is not on this disk"));
  fs::rename(Model(), dir_.Path("moved"));
  report = MustVerify(Checkpoint("fork", 6), key_);
  EXPECT_FALSE(report.any(Verdict::kWrong));
}

TEST_F(ChainTest, AChangeAnywhereInItIsFoundFromItsEnd) {
  const std::string files[] = {
      Checkpoint("a", 2) + "/m-00001.safetensors", Checkpoint("a", 4) + "/manifest.json",
      Checkpoint("fork", 6) + "/provenance.json", Checkpoint("a", 2) + "/provenance.sig",
      Model() + "/model.safetensors"};
  for (const std::string& file : files) {
    const std::string content = ReadFileOrDie(file);
    FlipBit(file, content.size() - 3);
    EXPECT_TRUE(MustVerify(dir_.Path("exported"), key_).any(Verdict::kWrong)) << file;
    WriteFileOrDie(file, content);
  }
  EXPECT_FALSE(MustVerify(dir_.Path("exported"), key_).any(Verdict::kWrong));
}

TEST_F(ChainTest, WhatAForeignParentSaysOfTheModelIsNotSignedAgain) {
  // The same checkpoint, by another daemon's key, with a claim of its own.
  const std::string parent = Checkpoint("a", 4);
  Provenance claimed = Read(parent);
  const absl::StatusOr<SigningKey> loaded = SigningKey::LoadOrCreate(dir_.Path("other.key"));
  ASSERT_TRUE(loaded.ok());
  const SigningKey& other = *loaded;
  claimed.public_key = other.public_key();
  claimed.model->path = "/models/famous";
  const std::string text = ProvenanceText(claimed);
  WriteFileOrDie(parent + "/provenance.json", text);
  WriteFileOrDie(parent + "/provenance.sig", other.Sign(text));
  TrainConfig config = FromModel("believer", 1);
  config.start_checkpoint = parent;
  config.schedule.max_steps = 5;
  MustTrain(config);
  const Provenance made = Read(Checkpoint("believer", 5));
  EXPECT_FALSE(made.model.has_value());
  EXPECT_EQ(made.parent->provenance_sha256, Sha256Of(text)) << "but that one is named";
  const VerifyReport report = MustVerify(Checkpoint("believer", 5), key_);
  EXPECT_FALSE(report.any(Verdict::kWrong));
  std::string open;
  for (const std::string& line : Found(report, Verdict::kOpen)) open += line + "\n";
  EXPECT_THAT(open, HasSubstr("another key"));
}

}  // namespace
}  // namespace penstock
