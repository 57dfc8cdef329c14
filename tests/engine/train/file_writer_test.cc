// Files of every awkward size, on disks that write half of what they are given or refuse O_DIRECT
// when it comes to it.
#include "engine/train/file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/train/rooted_file.h"
#include "gtest/gtest.h"
#include "tests/engine/train/fault_files.h"
#include "tests/engine/train/weights_testing.h"

namespace penstock {
namespace {

using testing::FileCall;
using testing::FileFault;
using testing::ReadFileOrDie;
using testing::StartFileFaults;
using testing::StopFileFaults;
using testing::TempDir;

constexpr int64_t kBuffer = FileWriter::kBufferBytes;

std::string SomeBytes(int64_t size) {
  std::string bytes(static_cast<size_t>(size), '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 131 + i / 4096);
  return bytes;
}

class FileWriterTest : public ::testing::Test {
 protected:
  FileWriterTest() : directory_(open(dir_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {}

  // Writes the bytes in pieces of at most `piece`; says first that there will be `expected`.
  absl::StatusOr<WrittenFile> Write(const std::string& bytes, int64_t piece, int64_t expected) {
    const std::string name = absl::StrCat("file", files_++);
    path_ = dir_.Path(name);
    PENSTOCK_ASSIGN_OR_RETURN(FileWriter writer,
                              FileWriter::Create(directory_.get(), dir_.path(), name, expected));
    for (size_t at = 0; at < bytes.size(); at += piece) {
      const std::string part = bytes.substr(at, piece);  // gone when Append has returned
      PENSTOCK_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(part))));
    }
    return writer.Finish();
  }

  void ExpectWritten(const std::string& bytes, const absl::StatusOr<WrittenFile>& written) {
    ASSERT_TRUE(written.ok()) << written.status();
    EXPECT_EQ(written->bytes, static_cast<int64_t>(bytes.size()));
    EXPECT_TRUE(ReadFileOrDie(path_) == bytes);
    StreamHash hash;
    hash.Update(std::as_bytes(std::span(bytes)));
    EXPECT_EQ(written->xxh3, hash.Digest());
  }

  // Whether files of this directory can be written past the page cache.
  bool HasDirect() {
    const FileDescriptor file(
        open(dir_.Path("probe").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    return fcntl(file.get(), F_SETFL, fcntl(file.get(), F_GETFL) | O_DIRECT) == 0;
  }

  TempDir dir_;
  FileDescriptor directory_;
  std::string path_;
  int files_ = 0;
};

TEST_F(FileWriterTest, EverySizeArrivesWhole) {
  for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{511}, int64_t{512}, int64_t{513},
                             int64_t{4095}, int64_t{4096}, int64_t{4097}, kBuffer - 1, kBuffer,
                             kBuffer + 1, kBuffer + 4096, 2 * kBuffer + 513}) {
    SCOPED_TRACE(size);
    const std::string bytes = SomeBytes(size);
    ExpectWritten(bytes, Write(bytes, 1 << 20, size));
    ExpectWritten(bytes, Write(bytes, 999'999, size));
  }
  // More or less than was said.
  const std::string bytes = SomeBytes(kBuffer + 77);
  ExpectWritten(bytes, Write(bytes, 1 << 20, 3));
  ExpectWritten(bytes, Write(bytes, 1 << 20, 3 * kBuffer));
}

TEST_F(FileWriterTest, ShortWritesAndLateRefusalsOfDirectWritesDoNoHarm) {
  const bool direct = HasDirect();
  const std::string bytes = SomeBytes(2 * kBuffer + 513);
  StartFileFaults(dir_.path(), {});
  ExpectWritten(bytes, Write(bytes, 1 << 20, static_cast<int64_t>(bytes.size())));
  const std::vector<FileCall> calls = StopFileFaults();
  int64_t tried = 0;
  for (size_t at = 0; at < calls.size(); ++at) {
    if (calls[at].kind != FileCall::Kind::kWrite) continue;
    SCOPED_TRACE(absl::StrCat("call ", at));
    const auto number = static_cast<int64_t>(at);
    StartFileFaults(dir_.path(), {.kind = FileFault::Kind::kShorten, .at = number});
    ExpectWritten(bytes, Write(bytes, 1 << 20, static_cast<int64_t>(bytes.size())));
    StopFileFaults();
    StartFileFaults(dir_.path(), {.kind = FileFault::Kind::kFail, .at = number, .error = EINVAL});
    const auto refused = Write(bytes, 1 << 20, static_cast<int64_t>(bytes.size()));
    StopFileFaults();
    // The end of the file has never gone past the cache.
    const bool last = calls[at].data.size() < static_cast<size_t>(kBuffer);
    if (direct && !last) {
      ExpectWritten(bytes, refused);
    } else {
      EXPECT_EQ(ReasonOf(refused.status()), reason::kIoError) << refused.status();
    }
    ++tried;
  }
  EXPECT_EQ(tried, 3);
}

}  // namespace
}  // namespace penstock
