#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/train/rooted_file.h"
#include "engine/train/safetensors.h"
#include "engine/train/safetensors_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weights_testing.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReadFileOrDie;
using testing::TempDir;
using testing::WriteFileOrDie;

std::string LengthPrefix(uint64_t length) {
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length));
}

// A file with a right length prefix.
std::string FileOf(const std::string& header, int64_t data_bytes) {
  return LengthPrefix(header.size()) + header + std::string(data_bytes, 'x');
}

class SafetensorsTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<StoredTensor>> Read(const std::string& content) {
    WriteFileOrDie(temp_.Path("file.safetensors"), content);
    absl::StatusOr<RootedDirectory> root = RootedDirectory::Open(temp_.path());
    if (!root.ok()) return root.status();
    absl::StatusOr<ReadableFile> file = root->OpenFile("file.safetensors");
    if (!file.ok()) return file.status();
    return ReadSafetensorsHeader(*file);
  }
  // The message of a refusal; it names the file.
  std::string Refusal(const std::string& content) {
    const absl::Status status = Read(content).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(ReasonOf(status), reason::kModelInvalid);
    EXPECT_THAT(std::string(status.message()), HasSubstr("file.safetensors"));
    return std::string(status.message());
  }
  TempDir temp_;
};

constexpr char kOne[] = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";

TEST_F(SafetensorsTest, ReadsTensorsInTheOrderOfTheirBytes) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"data_offsets":[4,6],"shape":[1],"dtype":"BF16"},)"
      R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})";
  const auto tensors = Read(FileOf(header, 6));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);
  const int64_t data = 8 + static_cast<int64_t>(header.size());
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[0].dtype, "F32");
  EXPECT_THAT((*tensors)[0].shape, IsEmpty());
  EXPECT_EQ((*tensors)[0].begin, data);
  EXPECT_EQ((*tensors)[0].bytes, 4);
  EXPECT_EQ((*tensors)[1].name, "b");
  EXPECT_THAT((*tensors)[1].shape, ElementsAre(1));
  EXPECT_EQ((*tensors)[1].begin, data + 4);
}

TEST_F(SafetensorsTest, AcceptsWhatTheFormatAllows) {
  const std::pair<std::string, int64_t> legal[] = {
      {kOne, 24},
      {std::string(kOne) + "    ", 24},
      {"{}", 0},
      {R"({"__metadata__":{}})", 0},
      {R"({"__metadata__":{"k":"v"},"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1},
      {R"({"a":{"dtype":"I64","shape":[0,7],"data_offsets":[0,0]}})", 0},
      {R"({"a":{"dtype":"F32","shape":[0,4611686018427387904],"data_offsets":[0,0]}})", 0},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"F32","shape":[0],"data_offsets":[4,4]},)"
       R"("c":{"dtype":"F4","shape":[4],"data_offsets":[4,6]}})",
       6},
      {R"({"\u00e9\"":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})", 4}};
  for (const auto& [header, data_bytes] : legal) {
    EXPECT_TRUE(Read(FileOf(header, data_bytes)).ok()) << header << "\n"
                                                       << Read(FileOf(header, data_bytes)).status();
  }
}

TEST_F(SafetensorsTest, LoadsAHeaderOfSixtyThousandTensors) {
  std::string header = "{";
  constexpr int kTensors = 60000;
  for (int i = 0; i < kTensors; ++i) {
    absl::StrAppend(&header, i == 0 ? "" : ",", "\"model.layers.", i,
                    ".weight\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[", i, ",", i + 1,
                    "]}");
  }
  const auto tensors = Read(FileOf(header + "}", kTensors));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->size(), static_cast<size_t>(kTensors));
}

// Each header is refused, and the message has these words.
struct Refused {
  std::string header;
  int64_t data_bytes;
  std::vector<std::string> words;
};

std::string Tensor(const std::string& members) { return "{\"t\":{" + members + "}}"; }

TEST_F(SafetensorsTest, RefusesCraftedRanges) {
  const Refused cases[] = {
      {Tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), 4, {"\"t\"", "end before"}},
      {Tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), 2, {"\"t\"", "cut off"}},
      {Tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), 8, {"take 4 bytes and 8"}},
      {Tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), 8, {"\"t\"", "hole"}},
      {Tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4, {"\"t\"", "needs 8"}},
      {Tensor(R"("dtype":"F32","shape":[0],"data_offsets":[0,4])"), 4, {"\"t\"", "needs 0"}},
      {Tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), 4, {"\"t\"", "2 are needed"}},
      {Tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,4])"), 4, {"\"t\"", "2 are"}},
      {Tensor(
           R"("dtype":"F32","shape":[1],"data_offsets":[9223372036854775804,9223372036854775807])"),
       4,
       {"\"t\""}},
      {Tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615])"),
       4,
       {"\"t\"", "too large"}},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
       6,
       {"\"b\"", "inside"}},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4,
       {"\"b\"", "inside"}},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
       12,
       {"\"b\"", "hole"}}};
  for (const Refused& refused : cases) {
    const std::string message = Refusal(FileOf(refused.header, refused.data_bytes));
    for (const std::string& word : refused.words) EXPECT_THAT(message, HasSubstr(word));
  }
}

TEST_F(SafetensorsTest, RefusesCraftedShapesAndTypes) {
  const Refused cases[] = {
      {Tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"),
       0,
       {"\"t\""}},
      {Tensor(R"("dtype":"F32","shape":[2305843009213693952],"data_offsets":[0,0])"), 0, {"\"t\""}},
      {Tensor(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0])"),
       0,
       {"\"t\""}},
      {Tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), 4, {"\"t\"", "-1"}},
      {Tensor(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), 4, {"\"t\"", "1.0"}},
      {Tensor(R"("dtype":"F32","shape":["1"],"data_offsets":[0,4])"), 4, {"\"t\""}},
      {Tensor(R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])"), 4, {"\"t\""}},
      {Tensor(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"), 4, {"\"t\""}},
      {Tensor(R"("dtype":"F32","shape":[null],"data_offsets":[0,4])"), 4, {"\"t\"", "null"}},
      {Tensor(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,4])"),
       4,
       {"\"t\"", "16"}},
      {Tensor(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])"), 4, {"\"t\"", "F33"}},
      {Tensor(R"("dtype":32,"shape":[1],"data_offsets":[0,4])"), 4, {"\"t\"", "32"}},
      {Tensor(R"("dtype":["F32"],"shape":[1],"data_offsets":[0,4])"), 4, {"\"t\""}},
      {Tensor(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])"), 1, {"\"t\""}}};
  for (const Refused& refused : cases) {
    const std::string message = Refusal(FileOf(refused.header, refused.data_bytes));
    for (const std::string& word : refused.words) EXPECT_THAT(message, HasSubstr(word));
  }
}

TEST_F(SafetensorsTest, RefusesCraftedStructure) {
  const std::string t = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  const Refused cases[] = {
      {"{\"t\":{" + t + "},\"t\":{" + t + "}}", 4, {"\"t\"", "twice"}},
      {Tensor(t + R"(,"shape":[1])"), 4, {"\"t\"", "twice"}},
      {Tensor(t + R"(,"extra":"x")"), 4, {"\"t\"", "extra"}},
      {Tensor(R"("dtype":"F32","shape":[1])"), 4, {"\"t\"", "lacks"}},
      {R"({"t":[1]})", 4, {"\"t\""}},
      {R"({"t":null})", 4, {"\"t\"", "null"}},
      {R"({"t":{"dtype":{"a":1}}})", 4, {"\"t\""}},
      {R"({"__metadata__":null})", 0, {"__metadata__", "null"}},
      {R"({"__metadata__":[]})", 0, {"__metadata__"}},
      {R"({"__metadata__":{"k":1}})", 0, {"__metadata__"}},
      {R"({"__metadata__":{"k":{"deep":"x"}}})", 0, {"__metadata__"}},
      {R"({"__metadata__":{"k":"a","k":"b"}})", 0, {"__metadata__", "twice"}},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, {"twice"}},
      {"{\"a\\u0000b\":{" + t + "}}", 4, {"a?b", "control"}},
      {"{\"\":{" + t + "}}", 4, {"empty name"}},
      {"{\"" + std::string(1025, 'n') + "\":{" + t + "}}", 4, {"1025 bytes"}},
      {"{\"" + std::string(10'000'000, 'n') + "\":{" + t + "}}", 4, {"10000000 bytes"}},
      {"{\"t\":" + std::string(2000, '['), 4, {"\"t\""}},
      {"{\"t\":{\"shape\":" + std::string(2000, '['), 4, {"\"t\""}},
      {"{\"t\":{", 4, {"not valid JSON"}},
      {std::string(kOne) + "x", 24, {"not valid JSON"}},
      {"{\"\xff\":{" + t + "}}", 4, {"not valid JSON"}},
      {"[]", 0, {"'{'"}},
      {" " + std::string(kOne), 24, {"'{'"}}};
  for (const Refused& refused : cases) {
    const std::string message = Refusal(FileOf(refused.header, refused.data_bytes));
    EXPECT_LT(message.size(), 600u);
    for (const std::string& word : refused.words) EXPECT_THAT(message, HasSubstr(word));
  }
}

TEST_F(SafetensorsTest, ChecksTheHeaderLengthBeforeAllocating) {
  // Any of these lengths would fail to allocate, or take the machine down.
  for (const uint64_t length : {uint64_t{1} << 63, UINT64_MAX, uint64_t{1} << 40, uint64_t{100}}) {
    EXPECT_THAT(Refusal(LengthPrefix(length) + kOne),
                AllOf(HasSubstr("cut off"), HasSubstr(absl::StrCat(length))));
  }
}

TEST_F(SafetensorsTest, NamesTheCapThatALargeHeaderExceeds) {
  // A sparse file: the header length fits it and is over the cap.
  const uint64_t length = static_cast<uint64_t>(kMaxSafetensorsHeaderBytes) + 1;
  WriteFileOrDie(temp_.Path("large.safetensors"), LengthPrefix(length) + kOne);
  ASSERT_EQ(truncate(temp_.Path("large.safetensors").c_str(), static_cast<off_t>(length + 64)), 0);
  const auto root = RootedDirectory::Open(temp_.path());
  const auto file = root->OpenFile("large.safetensors");
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(std::string(ReadSafetensorsHeader(*file).status().message()), HasSubstr("512.0 MiB"));
}

TEST_F(SafetensorsTest, NamesWhatTheFileReallyIs) {
  EXPECT_THAT(Refusal("version https://git-lfs.github.com/spec/v1\noid sha256:" +
                      std::string(64, 'a') + "\nsize 1234\n"),
              HasSubstr("git lfs pull"));
  EXPECT_THAT(Refusal("<!doctype html><html><body>Not found</body></html>"), HasSubstr("web page"));
  EXPECT_THAT(Refusal(""), HasSubstr("empty file"));
  EXPECT_THAT(Refusal("1234567"), HasSubstr("only 7 bytes"));
  EXPECT_THAT(Refusal(LengthPrefix(2)), HasSubstr("only 8 bytes"));
  EXPECT_THAT(Refusal(std::string("PK\x03\x04") + std::string(100, '\0')), HasSubstr("zip"));
  EXPECT_THAT(Refusal("\x80\x02}q" + std::string(100, 'a')), HasSubstr("pickle"));
  EXPECT_THAT(Refusal(FileOf(std::string(16, 'n'), 0)), HasSubstr("'{'"));
}

class SafetensorsWriterTest : public SafetensorsTest {
 protected:
  SafetensorsWriterTest() : directory_(open(temp_.path().c_str(), O_RDONLY | O_DIRECTORY)) {}
  absl::StatusOr<SafetensorsWriter> Create(const std::vector<WeightEntry>& entries) {
    return SafetensorsWriter::Create(directory_.get(), temp_.path(), "out.safetensors", entries);
  }
  FileDescriptor directory_;
};

TEST_F(SafetensorsWriterTest, WritesAlignedHeadersWithFormatPt) {
  const std::vector<WeightEntry> entries = {{"z", WeightType::kBFloat16, {3}},
                                            {"a\"b", WeightType::kFloat32, {1, 2}}};
  auto writer = Create(entries);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(writer->Append(std::as_bytes(std::span("ZZZZZZaa", 8))).ok());
  ASSERT_TRUE(writer->Append(std::as_bytes(std::span("aaaaaa", 6))).ok());
  const auto written = writer->Finish();
  ASSERT_TRUE(written.ok()) << written.status();
  const std::string content = ReadFileOrDie(temp_.Path("out.safetensors"));
  EXPECT_EQ(written->bytes, static_cast<int64_t>(content.size()));
  EXPECT_THAT(content, HasSubstr(R"("__metadata__":{"format":"pt"})"));
  const auto tensors = Read(content);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].name, "z");
  EXPECT_EQ((*tensors)[0].begin % 8, 0);
  EXPECT_EQ((*tensors)[1].name, "a\"b");
  EXPECT_EQ(content.substr((*tensors)[1].begin), "aaaaaaaa");
}

TEST_F(SafetensorsWriterTest, RefusesTooManyAndTooFewBytes) {
  auto writer = Create({{"a", WeightType::kFloat32, {1}}});
  ASSERT_TRUE(writer.ok());
  EXPECT_FALSE(writer->Append(std::as_bytes(std::span("12345", 5))).ok());
  EXPECT_FALSE(writer->Finish().ok());
}

TEST_F(SafetensorsWriterTest, NeverWritesOverAFile) {
  WriteFileOrDie(temp_.Path("out.safetensors"), "precious");
  EXPECT_FALSE(Create({}).ok());
  EXPECT_EQ(ReadFileOrDie(temp_.Path("out.safetensors")), "precious");
}

// A limit on the size of files, as a quota: the one full disk that a test can have anywhere.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &old_);
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &old_); }

 private:
  rlimit old_{};
};

TEST_F(SafetensorsWriterTest, FullDiskIsNamedWithTheBytesWanted) {
  absl::Status status;
  {
    const FileSizeLimit limit(1 << 20);
    auto writer = Create({{"a", WeightType::kFloat32, {1 << 19}}});
    status = writer.status();
    // Where space cannot be reserved, a write fails, at the latest that of what was buffered.
    if (writer.ok()) {
      status = writer->Append(std::vector<std::byte>(1 << 21));
      if (status.ok()) status = writer->Finish().status();
    }
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(ReasonOf(status), reason::kDiskInsufficient);
  EXPECT_FALSE(MetadataOf(status)["needed_bytes"].empty());
}

}  // namespace
}  // namespace penstock
