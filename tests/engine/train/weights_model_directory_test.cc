#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/train/model_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weights_testing.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using testing::FindMade;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MadeFile;
using testing::MakeFiles;
using testing::SpecOf;
using testing::TempDir;
using testing::TinyConfig;
using testing::WriteFileOrDie;
using testing::WriteMadeFile;
using testing::WriteModel;

constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kUp[] = "model.layers.0.mlp.up_proj.weight";
constexpr char kNorm[] = "model.norm.weight";
constexpr char kTable[] = "model.embed_tokens.weight";
constexpr char kHead[] = "lm_head.weight";

class ModelDirectoryTest : public ::testing::Test {
 protected:
  std::string model() const { return temp_.Path("model"); }
  std::vector<MadeFile> Files(int shards) {
    return MakeFiles(SpecOf(config_), WeightType::kBFloat16, shards);
  }
  void Write(const std::vector<MadeFile>& files) { WriteModel(model(), config_, files); }
  absl::StatusOr<std::unique_ptr<ModelDirectory>> Open() { return ModelDirectory::Open(model()); }
  // The message of a refusal whose reason is as given.
  std::string Refusal(std::string_view reason = reason::kModelInvalid) {
    const absl::Status status = Open().status();
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(ReasonOf(status), reason) << status;
    return std::string(status.message());
  }
  // Changes weight_map of the index that is there.
  void MapTo(const std::string& tensor, const json& shard) {
    const std::string path = model() + "/" + kIndex;
    json index = json::parse(testing::ReadFileOrDie(path));
    index["weight_map"][tensor] = shard;
    WriteFileOrDie(path, index.dump());
  }
  std::string Shard(int number) const {
    return absl::StrCat("model-0000", number, "-of-00003.safetensors");
  }

  TempDir temp_;
  json config_ = TinyConfig();
};

TEST_F(ModelDirectoryTest, AccountsForEveryParameterOnce) {
  for (const int shards : {1, 3}) {
    fs::remove_all(model());
    Write(Files(shards));
    const auto directory = Open();
    ASSERT_TRUE(directory.ok()) << directory.status();
    const ModelDirectory& d = **directory;
    EXPECT_EQ(d.files().size(), static_cast<size_t>(shards));
    EXPECT_EQ(d.source().files.size(), static_cast<size_t>(shards));
    EXPECT_EQ(d.source().indexed, shards == 3);
    EXPECT_EQ(d.weight_bytes(), d.layout().parameter_count * 2);
    EXPECT_THAT(d.notes(), IsEmpty());
    size_t parameters = 0;
    for (const BlockLayout& block : d.layout().blocks) parameters += block.parameters.size();
    EXPECT_EQ(d.tensors().size(), parameters);
  }
}

TEST_F(ModelDirectoryTest, MissingPiecesAreNamedWithTheWayOut) {
  EXPECT_THAT(Refusal(), HasSubstr("is not a directory"));
  fs::create_directories(model());
  EXPECT_THAT(Refusal(), HasSubstr("config.json"));
  WriteFileOrDie(model() + "/config.json", config_.dump());
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("neither model.safetensors"), HasSubstr("download")));
  WriteFileOrDie(model() + "/pytorch_model.bin", "x");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("pytorch_model.bin"), HasSubstr("convert")));
}

TEST_F(ModelDirectoryTest, UnsupportedModelKeepsItsReason) {
  config_["model_type"] = "mamba";
  fs::create_directories(model());
  WriteFileOrDie(model() + "/config.json", config_.dump());
  EXPECT_THAT(Refusal(reason::kModelUnsupported), AllOf(HasSubstr("mamba"), HasSubstr(model())));
}

TEST_F(ModelDirectoryTest, ForeignFilesAreNamed) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
  Write(Files(1));
  for (const char* name : {"tokenizer.json", "model.safetensors", "config.json"}) {
    const std::string before = fs::exists(model() + "/" + name)
                                   ? testing::ReadFileOrDie(model() + "/" + name)
                                   : std::string("{}");
    WriteFileOrDie(model() + "/" + name, pointer);
    EXPECT_THAT(Refusal(), AllOf(HasSubstr(name), HasSubstr("git lfs pull")));
    WriteFileOrDie(model() + "/" + name, before);
  }
  EXPECT_TRUE(Open().ok());
}

TEST_F(ModelDirectoryTest, MissingShardIsNamed) {
  Write(Files(3));
  fs::remove(model() + "/" + Shard(2));
  EXPECT_THAT(Refusal(), AllOf(HasSubstr(Shard(2)), HasSubstr("download")));
}

TEST_F(ModelDirectoryTest, TensorInAnotherShardThanTheIndexSaysIsRefused) {
  Write(Files(3));
  MapTo(kNorm, Shard(1));
  EXPECT_THAT(Refusal(), AllOf(HasSubstr(kNorm), HasSubstr(Shard(1)), HasSubstr(Shard(3))));
}

TEST_F(ModelDirectoryTest, TensorInTwoShardsIsRefused) {
  std::vector<MadeFile> files = Files(3);
  files[2].second.push_back(files[0].second[0]);
  const std::string name = files[0].second[0].entry.name;
  Write(files);
  MapTo(name, Shard(1));
  EXPECT_THAT(Refusal(), AllOf(HasSubstr(name), HasSubstr(Shard(1)), HasSubstr(Shard(3))));
}

TEST_F(ModelDirectoryTest, StrayWeightsNextToShardsAreNoted) {
  Write(Files(3));
  WriteMadeFile(model(), {"model.safetensors", {{{"x", WeightType::kFloat32, {1}}, "abcd"}}});
  const auto directory = Open();
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_THAT((*directory)->notes(), Contains("not used: model.safetensors"));
  EXPECT_EQ((*directory)->files().size(), 3u);
}

TEST_F(ModelDirectoryTest, TensorsThatDoNotFitTheModelAreNamed) {
  std::vector<MadeFile> files = Files(1);
  files[0].second.push_back({{"model.extra.weight", WeightType::kFloat32, {1}}, "abcd"});
  Write(files);
  EXPECT_THAT(Refusal(), HasSubstr("model.extra.weight"));

  fs::remove_all(model());
  files = Files(1);
  std::erase_if(files[0].second, [](const auto& t) { return t.entry.name == kUp; });
  Write(files);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("lacks 1"), HasSubstr(kUp)));

  fs::remove_all(model());
  files = Files(1);
  std::swap(FindMade(files, kUp).entry.shape[0], FindMade(files, kUp).entry.shape[1]);
  Write(files);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr(kUp), HasSubstr("[64, 176]"), HasSubstr("[176, 64]")));
}

TEST_F(ModelDirectoryTest, IndexAndShardsMustNameTheSameTensors) {
  std::vector<MadeFile> files = Files(3);
  Write(files);
  MapTo("model.ghost.weight", Shard(1));
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("model.ghost.weight"), HasSubstr(Shard(1))));

  const std::string path = model() + "/" + kIndex;
  json index = json::parse(testing::ReadFileOrDie(path));
  index["weight_map"].erase("model.ghost.weight");
  index["weight_map"].erase(kNorm);
  WriteFileOrDie(path, index.dump());
  EXPECT_THAT(Refusal(), AllOf(HasSubstr(kNorm), HasSubstr("not in")));
}

TEST_F(ModelDirectoryTest, BrokenIndexIsRefused) {
  Write(Files(3));
  for (const char* text : {"[]", "{}", R"({"weight_map": []})", R"({"weight_map": {}})",
                           R"({"weight_map": {"a": 1}})", R"({"weight_map": {"a": null}})"}) {
    WriteFileOrDie(model() + "/" + kIndex, text);
    EXPECT_THAT(Refusal(), HasSubstr(kIndex)) << text;
  }
}

TEST_F(ModelDirectoryTest, NamesInTheIndexCannotLeaveTheDirectory) {
  Write(Files(3));
  WriteFileOrDie(temp_.Path("x.safetensors"), "secret");
  fs::create_symlink("../x.safetensors", model() + "/link.safetensors");
  ASSERT_EQ(mkfifo((model() + "/fifo.safetensors").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", model() + "/zero.safetensors");
  for (const std::string name :
       {"../x.safetensors", "../y.safetensors", "a/../../x.safetensors", "/etc/passwd",
        "/x.safetensors", "link.safetensors", "fifo.safetensors", "zero.safetensors", "config.json",
        "", ".", "..", "sub/x.safetensors", "a\nb.safetensors"}) {
    MapTo(kNorm, name);
    Refusal(reason::kPathNotAllowed);
  }
  MapTo(kNorm, std::string("a\0.safetensors", 14));
  Refusal(reason::kPathNotAllowed);
}

TEST_F(ModelDirectoryTest, WeightsBehindALinkOutAreRefusedWithTheWayOut) {
  Write(Files(1));
  fs::rename(model() + "/model.safetensors", temp_.Path("blob"));
  fs::create_symlink("../blob", model() + "/model.safetensors");
  EXPECT_THAT(Refusal(reason::kPathNotAllowed), HasSubstr("cp -rL"));
}

TEST_F(ModelDirectoryTest, OldFrequencyTensorsAreIgnored) {
  std::vector<MadeFile> files = Files(1);
  files[0].second.push_back(
      {{"model.layers.0.self_attn.rotary_emb.inv_freq", WeightType::kFloat32, {8}},
       std::string(32, 'x')});
  Write(files);
  const auto directory = Open();
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_THAT((*directory)->notes(), Contains(HasSubstr("inv_freq")));
  for (const WeightEntry& entry : (*directory)->source().files[0].entries) {
    EXPECT_EQ(entry.name.find("inv_freq"), std::string::npos);
  }
}

TEST_F(ModelDirectoryTest, TypesThatAreNotImportedAreNamed) {
  // The writer knows floats only: patch the dtype of a 2-byte tensor in the header.
  Write(Files(1));
  const std::string path = model() + "/model.safetensors";
  std::string content = testing::ReadFileOrDie(path);
  content.replace(content.find("\"BF16\""), 6, "\"I16\" ");
  WriteFileOrDie(path, content);
  EXPECT_THAT(Refusal(reason::kModelUnsupported),
              AllOf(HasSubstr("I16"), HasSubstr("supported: F32, F16, BF16")));
}

TEST_F(ModelDirectoryTest, TiedHeadEqualToTheTableIsKeptInTheSource) {
  std::vector<MadeFile> files = Files(1);
  FindMade(files, kHead).bytes = FindMade(files, kTable).bytes;
  config_["tie_word_embeddings"] = true;
  Write(files);
  const auto directory = Open();
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_TRUE((*directory)->spec().tied());
  EXPECT_EQ((*directory)->tensors().size() + 1, (*directory)->source().files[0].entries.size());
}

TEST_F(ModelDirectoryTest, TiedHeadMayBeAbsent) {
  config_["tie_word_embeddings"] = true;
  Write(Files(1));
  EXPECT_TRUE(Open().ok());
}

TEST_F(ModelDirectoryTest, TiedHeadThatDiffersIsRefusedWithBothNames) {
  std::vector<MadeFile> files = Files(3);
  FindMade(files, kHead).bytes = FindMade(files, kTable).bytes;
  FindMade(files, kHead).bytes.back() ^= 1;
  config_["tie_word_embeddings"] = true;
  Write(files);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr(kHead), HasSubstr(kTable), HasSubstr("differ")));
}

TEST_F(ModelDirectoryTest, UntiedModelWithoutAHeadIsRefusedWithBothNames) {
  for (const bool flag_missing : {false, true}) {
    fs::remove_all(model());
    std::vector<MadeFile> files = Files(1);
    std::erase_if(files[0].second, [](const auto& t) { return t.entry.name == kHead; });
    const json whole = config_;
    if (flag_missing) config_.erase("tie_word_embeddings");
    Write(files);
    config_ = whole;
    EXPECT_THAT(Refusal(),
                AllOf(HasSubstr(kHead), HasSubstr(kTable), HasSubstr("tie_word_embeddings")));
  }
}

TEST_F(ModelDirectoryTest, VocabularyThatDisagreesIsOneClearLine) {
  const std::vector<MadeFile> files = Files(1);
  config_["vocab_size"] = 500;
  Write(files);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("vocab_size is 500"), HasSubstr("512 rows")));
}

// BC-24
TEST_F(ModelDirectoryTest, PaddedVocabularyIsAccepted) {
  config_["vocab_size"] = 576;
  Write(Files(1));
  const auto directory = Open();
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_EQ((*directory)->spec().vocab_size, 576);
}

TEST_F(ModelDirectoryTest, SideFilesAreReadAndOthersNoted) {
  Write(Files(1));
  const std::map<std::string, std::string> side_files = {{"tokenizer.json", "{\"a\": 1}"},
                                                         {"tokenizer_config.json", "{}"},
                                                         {"generation_config.json", "{ }"},
                                                         {"special_tokens_map.json", "{}"},
                                                         {"chat_template.jinja", "{{ messages }}"},
                                                         {"merges.txt", ""},
                                                         {"vocab.json", "{}"},
                                                         {"spiece.model", std::string("\0\1\2", 3)},
                                                         {"added_tokens.json", "{}"}};
  for (const auto& [name, content] : side_files) WriteFileOrDie(model() + "/" + name, content);
  WriteFileOrDie(model() + "/README.md", "# Model");
  fs::create_directories(model() + "/tokenizer");
  const auto directory = Open();
  ASSERT_TRUE(directory.ok()) << directory.status();
  std::map<std::string, std::string> read;
  for (const SideFile& file : (*directory)->source().side_files) read[file.name] = file.content;
  EXPECT_EQ(read, side_files);
  EXPECT_THAT((*directory)->notes(),
              ::testing::ElementsAre("not used: README.md", "not used: tokenizer"));
}

TEST_F(ModelDirectoryTest, SideFileThatIsTooLargeIsRefused) {
  Write(Files(1));
  WriteFileOrDie(model() + "/tokenizer.json", "{}");
  fs::resize_file(model() + "/tokenizer.json", (uint64_t{64} << 20) + 1);  // sparse
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("tokenizer.json"), HasSubstr("64.0 MiB")));
}

}  // namespace
}  // namespace penstock
