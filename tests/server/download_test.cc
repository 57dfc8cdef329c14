// Files fetched from a daemon, over its socket.
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/provenance/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/reasons.h"
#include "tests/server/test_support.h"
#include "tests/server/transfer_fixture.h"

namespace penstock::server {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(TransferTest, ACheckpointIsFetchedAndHeldMeanwhile) {
  Start();
  const std::string job =
      client_->Submit({{"steps", "4"}, {"checkpoint_every", "2"}, {"weights", "40000000"}});
  client_->WaitForEnd(job);
  const std::string two = job + "/checkpoints/2";
  EXPECT_THAT(Files(two), ElementsAre("weights:40000000:"));
  const auto delete_it = [&] {
    grpc::ClientContext context;
    v1::DeleteCheckpointRequest request;
    v1::DeleteCheckpointResponse response;
    request.set_name(two);
    return client_->checkpoints->DeleteCheckpoint(&context, request, &response);
  };
  const auto delete_job = [&] {
    grpc::ClientContext context;
    v1::DeleteJobRequest request;
    v1::DeleteJobResponse response;
    request.set_name(job);
    return client_->jobs->DeleteJob(&context, request, &response);
  };
  {
    // A reader that takes one piece and then no more.
    grpc::ClientContext context;
    v1::ReadFileRequest request;
    request.set_parent(two);
    request.set_path("weights");
    const auto reader = client_->transfers->ReadFile(&context, request);
    v1::ReadFileResponse piece;
    ASSERT_TRUE(reader->Read(&piece));
    const grpc::Status refused = delete_it();
    EXPECT_EQ(ReasonFor(refused), reason::kCheckpointInUse);
    EXPECT_THAT(refused.error_message(), HasSubstr("download"));
    EXPECT_EQ(ReasonFor(delete_job()), reason::kCheckpointInUse);
    context.TryCancel();
    while (reader->Read(&piece)) {
    }
    reader->Finish();
  }
  const Fetched rest = Read(two, "weights", 39'999'990);
  EXPECT_EQ(rest.data, "wwwwwwwwww");
  EXPECT_EQ(rest.sha256, Sha256Of(std::string(40'000'000, 'w'))) << "of the whole file";
  // Nobody reads any more, though it is held for a while.
  grpc::Status deleted;
  for (int i = 0; i < 1000 && !(deleted = delete_it()).ok(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(deleted.ok()) << deleted.error_message();
  EXPECT_EQ(ReasonFor(Read(two, "weights").status), reason::kCheckpointNotFound);
  EXPECT_EQ(Read(job + "/checkpoints/4", "weights").data.size(), 40'000'000u);
  for (int i = 0; i < 1000 && !(deleted = delete_job()).ok(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(deleted.ok()) << deleted.error_message();
}

TEST_F(TransferTest, NothingOutsideOfADirectoryIsFetched) {
  options_.allowed_roots = {directory_.path()};
  Start();
  const std::string job = client_->Submit({{"steps", "2"}, {"checkpoint_every", "1"}});
  client_->WaitForEnd(job);
  const std::string one = job + "/checkpoints/1";
  const std::string root = absl::StrCat(directory_.state(), "/", one);
  const std::string secret = directory_.path() + "/secret";
  std::ofstream(secret) << "secret";
  fs::create_symlink(secret, root + "/link");
  fs::create_symlink(directory_.path(), root + "/up");
  ASSERT_EQ(mkfifo((root + "/fifo").c_str(), 0600), 0);
  EXPECT_THAT(Files(one), ElementsAre("weights:10:")) << "links that lead out are no files of it";
  for (const char* path : {"link", "up/secret", "fifo"}) {
    const Fetched fetched = Read(one, path);
    EXPECT_EQ(ReasonFor(fetched.status), reason::kPathNotAllowed) << path;
    EXPECT_EQ(fetched.data, "");
  }
  for (const char* path : {"../2/weights", "/etc/passwd", "", "a//b", "./weights", "a\nb"}) {
    EXPECT_EQ(ReasonFor(Read(one, path).status), reason::kRequestInvalid) << path;
  }
  EXPECT_EQ(ReasonFor(Read(one, "nothing").status), reason::kFileNotFound);
  grpc::Status status;
  for (const char* parent :
       {"", "/etc", "jobs/x", "jobs/../..", "uploads/..", "jobs/abcd/exports/"}) {
    Files(parent, &status);
    EXPECT_FALSE(status.ok()) << parent;
    EXPECT_FALSE(Read(parent, "passwd").status.ok()) << parent;
  }

  // An exported directory that somebody has replaced with a link.
  const auto export_to = [&](const std::string& directory) {
    grpc::ClientContext context;
    v1::ExportCheckpointRequest request;
    v1::ExportCheckpointResponse response;
    request.mutable_spec()->set_checkpoint(one);
    request.mutable_spec()->set_directory(directory);
    EXPECT_TRUE(client_->checkpoints->ExportCheckpoint(&context, request, &response).ok());
    client_->WaitForEnd(response.job().name());
    return response.job().name();
  };
  const std::string exported = export_to(directory_.path() + "/out");
  fs::create_directory(directory_.path() + "/out");
  std::ofstream(directory_.path() + "/out/model") << "model";
  EXPECT_EQ(Read(exported + "/exports/1", "model").data, "model");
  EXPECT_EQ(ReasonFor(Read(exported + "/exports/2", "model").status), reason::kFileNotFound);
  fs::remove_all(directory_.path() + "/out");
  fs::create_directory_symlink("/etc", directory_.path() + "/out");
  EXPECT_EQ(ReasonFor(Read(exported + "/exports/1", "passwd").status), reason::kPathNotAllowed);
}

}  // namespace
}  // namespace penstock::server
