// Checks of what is sent: checksums, names, announcements.
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/crc32c.h"
#include "engine/base/relative_path.h"
#include "engine/base/status.h"
#include "gtest/gtest.h"
#include "server/jobs/request_checks.h"
#include "tests/server/transfer_fixture.h"

namespace penstock::server {
namespace {

TEST(Crc32cTest, HasTheValuesOfTheStandard) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720, B.4
}

TEST(RelativePathTest, TakesNamesThatStayBeneathADirectory) {
  for (const char* path : {"a", "a/b", "model.safetensors", ".hidden", "a b", "..a", "a..", "ü"}) {
    EXPECT_TRUE(IsRelativePath(path)) << path;
  }
  const std::string long_part(256, 'x'),
      long_path = std::string(250, 'x') + "/" + std::string(250, 'y') + "/" + std::string(20, 'z');
  std::string deep = "d";
  for (int i = 0; i < 16; ++i) deep += "/d";
  for (const std::string& path :
       {std::string(), std::string("/a"), std::string("a/"), std::string("a//b"), std::string("."),
        std::string(".."), std::string("../x.safetensors"), std::string("a/../../x"),
        std::string("a/./b"), std::string("a/.."), std::string("a\nb"), std::string("a\x7f"),
        std::string("a\0b", 3), std::string("/etc/passwd"), long_part, long_path, deep}) {
    EXPECT_FALSE(IsRelativePath(path)) << path;
  }
}

TEST(UploadFilesTest, AnnouncementsAreChecked) {
  const auto check = [](const std::vector<v1::FileEntry>& files) {
    v1::CreateUploadRequest request;
    for (const v1::FileEntry& file : files) *request.add_files() = file;
    return CheckUploadFiles(request).status();
  };
  EXPECT_TRUE(check({Entry("a", "1"), Entry("b/c", "")}).ok());
  v1::FileEntry negative = Entry("a", ""), no_hash = negative, upper = negative, huge = negative;
  negative.set_bytes(-1);
  no_hash.clear_sha256();
  upper.set_sha256(std::string(64, 'A'));
  huge.set_bytes(INT64_MAX);
  v1::FileEntry huger = huge;
  huger.set_path("b");
  for (const auto& files : std::vector<std::vector<v1::FileEntry>>{
           {},
           {negative},
           {no_hash},
           {upper},
           {huge, huger},
           {Entry("a", ""), Entry("a", "")},
           {Entry("a/b", ""), Entry("a", "")},
           {Entry("../a", "")},
           std::vector<v1::FileEntry>(10'001, Entry("a", ""))}) {
    const absl::Status refused = check(files);
    EXPECT_EQ(ReasonOf(refused), reason::kRequestInvalid) << refused;
  }
}

}  // namespace
}  // namespace penstock::server
