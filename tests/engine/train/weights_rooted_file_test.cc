#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "engine/base/status.h"
#include "engine/train/rooted_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weights_testing.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempDir;
using testing::WriteFileOrDie;
using Resolver = RootedDirectory::Resolver;

// outside.txt and model/{in.txt, sub/deep.txt, ...}, with every kind of trap beside them.
class RootedDirectoryTest : public ::testing::TestWithParam<Resolver> {
 protected:
  void SetUp() override {
    WriteFileOrDie(temp_.Path("outside.txt"), "secret");
    std::filesystem::create_directories(temp_.Path("model/sub"));
    std::filesystem::create_directories(temp_.Path("elsewhere"));
    WriteFileOrDie(temp_.Path("elsewhere/x.txt"), "secret");
    WriteFileOrDie(temp_.Path("model/in.txt"), "content");
    WriteFileOrDie(temp_.Path("model/sub/deep.txt"), "deep");
    Link("../outside.txt", "link_out");
    Link("../nothing.txt", "link_to_nothing_outside");
    Link(temp_.Path("outside.txt"), "link_absolute");
    Link("/dev/zero", "link_zero");
    Link("../elsewhere", "link_directory");
    Link("in.txt", "link_in");
    Link("link_loop", "link_loop");
    ASSERT_EQ(mkfifo(temp_.Path("model/fifo").c_str(), 0600), 0);
  }
  void Link(const std::string& target, const std::string& name) {
    std::filesystem::create_symlink(target, temp_.Path("model/" + name));
  }
  absl::StatusOr<std::string> Read(const std::string& name) {
    absl::StatusOr<RootedDirectory> root = RootedDirectory::Open(temp_.Path("model"), GetParam());
    if (!root.ok()) return root.status();
    absl::StatusOr<ReadableFile> file = root->OpenFile(name);
    if (!file.ok()) return file.status();
    return file->ReadAll(1000);
  }
  TempDir temp_;
};

TEST_P(RootedDirectoryTest, ReadsFilesBeneath) {
  EXPECT_EQ(Read("in.txt").value_or(""), "content");
  EXPECT_EQ(Read("sub/deep.txt").value_or(""), "deep");
}

TEST_P(RootedDirectoryTest, RefusesEveryWayOut) {
  for (const std::string name : {"..",
                                 "../outside.txt",
                                 "../nothing.txt",
                                 "sub/../../outside.txt",
                                 "sub/../in.txt",
                                 "/",
                                 "/etc/passwd",
                                 "/nothing",
                                 "link_out",
                                 "link_to_nothing_outside",
                                 "link_absolute",
                                 "link_zero",
                                 "link_directory/x.txt",
                                 "link_directory/nothing.txt",
                                 "link_loop",
                                 "",
                                 ".",
                                 "./in.txt",
                                 "sub//deep.txt",
                                 "sub/",
                                 "in.txt\n",
                                 "fifo",
                                 "sub"}) {
    const absl::Status status = Read(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << name << ": " << status;
    EXPECT_EQ(ReasonOf(status), reason::kPathNotAllowed) << name;
  }
  EXPECT_EQ(ReasonOf(Read(std::string("in.txt\0x", 8)).status()), reason::kPathNotAllowed);
  EXPECT_EQ(ReasonOf(Read(std::string(5000, 'a')).status()), reason::kPathNotAllowed);
}

TEST_P(RootedDirectoryTest, ErrorDoesNotTellWhatExistsOutside) {
  const auto message = [&](const std::string& name) {
    std::string text(Read(name).status().message());
    return text.replace(text.find(name), name.size(), "NAME");
  };
  EXPECT_EQ(message("../outside.txt"), message("../nothing.txt"));
  EXPECT_EQ(message("link_out"), message("link_to_nothing_outside"));
  EXPECT_EQ(message("link_directory/x.txt"), message("link_directory/nothing.txt"));
  EXPECT_EQ(message("/etc/passwd"), message("/etc/nothing"));
}

TEST_P(RootedDirectoryTest, MissingFileIsNotFound) {
  EXPECT_EQ(Read("missing.txt").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Read("in.txt/x").status().code(), absl::StatusCode::kNotFound);
}

TEST_P(RootedDirectoryTest, LinkThatStaysBeneathIsFollowedByTheKernelOnly) {
  const absl::StatusOr<std::string> content = Read("link_in");
  if (GetParam() == Resolver::kKernel) {
    EXPECT_EQ(content.value_or(""), "content");
  } else {
    EXPECT_EQ(ReasonOf(content.status()), reason::kPathNotAllowed);
  }
}

INSTANTIATE_TEST_SUITE_P(Resolvers, RootedDirectoryTest,
                         ::testing::Values(Resolver::kKernel, Resolver::kWalk),
                         [](const auto& info) {
                           return info.param == Resolver::kKernel ? "Kernel" : "Walk";
                         });

TEST(ReadableFileTest, ReadsStopAtTheEndAndAtTheLimit) {
  TempDir temp;
  WriteFileOrDie(temp.Path("file"), "0123456789");
  const absl::StatusOr<RootedDirectory> root = RootedDirectory::Open(temp.path());
  ASSERT_TRUE(root.ok());
  const absl::StatusOr<ReadableFile> file = root->OpenFile("file");
  ASSERT_TRUE(file.ok());
  char two[2];
  ASSERT_TRUE(file->ReadAt(8, std::as_writable_bytes(std::span(two))).ok());
  EXPECT_EQ(std::string(two, 2), "89");
  EXPECT_EQ(file->ReadAt(9, std::as_writable_bytes(std::span(two))).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(file->ReadAll(9).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(RootedDirectoryOpenTest, NeedsADirectory) {
  TempDir temp;
  WriteFileOrDie(temp.Path("file"), "");
  for (const std::string name : {"file", "missing"}) {
    EXPECT_EQ(RootedDirectory::Open(temp.Path(name)).status().code(), absl::StatusCode::kNotFound);
  }
}

TEST(CheckUnderRootsTest, AcceptsWhatLiesInARootAndResolvesIt) {
  TempDir temp;
  std::filesystem::create_directories(temp.Path("root/a"));
  std::filesystem::create_symlink("a", temp.Path("root/link"));
  const std::string root = std::filesystem::canonical(temp.Path("root")).string();
  const auto check = [&](const std::string& path) {
    return CheckUnderRoots(path, {"/nonexistent-root", temp.Path("root")}).value_or("refused");
  };
  EXPECT_EQ(check(root), root);
  EXPECT_EQ(check(root + "/link/"), root + "/a");
  EXPECT_EQ(check(root + "/a/../a/./new/output"), root + "/a/new/output");
  EXPECT_EQ(CheckUnderRoots("/", {"/"}).value_or("refused"), "/");
  EXPECT_EQ(CheckUnderRoots("/proc/self/../../etc", {"/"}).value_or("refused"), "/etc");
}

TEST(CheckUnderRootsTest, RefusesEverythingElseWithOneMessage) {
  TempDir temp;
  std::filesystem::create_directories(temp.Path("root"));
  std::filesystem::create_directories(temp.Path("root-not"));
  std::filesystem::create_symlink("../root-not", temp.Path("root/out"));
  std::filesystem::create_symlink("../nothing", temp.Path("root/dangling"));
  std::filesystem::create_symlink("loop", temp.Path("root/loop"));
  const std::string root = temp.Path("root");
  for (const std::string& path :
       {root + "-not", root + "/..", root + "/out", root + "/out/x", root + "/dangling",
        root + "/loop", root + "/new/../../root-not", std::string("relative"), std::string(),
        std::string("/etc/passwd"), root + "/a\nb", root + "/" + std::string(5000, 'a')}) {
    const absl::Status status = CheckUnderRoots(path, {root}).status();
    EXPECT_EQ(ReasonOf(status), reason::kPathNotAllowed) << path;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\n")));
  }
  EXPECT_EQ(ReasonOf(CheckUnderRoots("/tmp", {}).status()), reason::kPathNotAllowed);
}

TEST(IsPlainFileNameTest, TakesOneComponentOnly) {
  for (const char* name : {"a", "model.safetensors", "..a", "a b", ".hidden"}) {
    EXPECT_TRUE(IsPlainFileName(name)) << name;
  }
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("a/b"), std::string("/a"),
        std::string("a\n"), std::string("a\0b", 3), std::string(256, 'a')}) {
    EXPECT_FALSE(IsPlainFileName(name)) << name;
  }
}

}  // namespace
}  // namespace penstock
