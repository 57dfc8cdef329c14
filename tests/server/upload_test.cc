// Files sent to a daemon, over its socket.
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/crc32c.h"
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

TEST_F(TransferTest, WhatWasSentIsThereAndCanBeFetchedAgain) {
  Start();
  const std::string big = Content(3'500'000), small = "{}";
  v1::Upload upload;
  ASSERT_TRUE(Create("mine",
                     {Entry("weights/w.bin", big), Entry("config.json", small), Entry("empty", "")},
                     &upload)
                  .ok());
  EXPECT_EQ(upload.name(), "uploads/mine");
  EXPECT_FALSE(upload.complete());
  EXPECT_TRUE(upload.directory().empty());
  EXPECT_THAT(Received("uploads/mine"), ElementsAre(0, 0, 0));
  EXPECT_EQ(ReasonFor(FinishUpload("uploads/mine")), reason::kUploadIncomplete);
  ASSERT_TRUE(Write("uploads/mine", "weights/w.bin", big, 0).ok());
  ASSERT_TRUE(Write("uploads/mine", "config.json", small, 0).ok());
  EXPECT_THAT(Received("uploads/mine"), ElementsAre(3'500'000, 2, 0));
  EXPECT_EQ(ReasonFor(Read("uploads/mine", "config.json").status), reason::kUploadIncomplete);

  ASSERT_TRUE(FinishUpload("uploads/mine", &upload, "once").ok());
  EXPECT_TRUE(upload.complete());
  EXPECT_EQ(upload.directory(), directory_.state() + "/uploads/mine");
  EXPECT_EQ(ReadFile(upload.directory() + "/weights/w.bin"), big);
  EXPECT_EQ(ReadFile(upload.directory() + "/config.json"), small);
  EXPECT_TRUE(fs::exists(upload.directory() + "/empty"));
  EXPECT_FALSE(fs::exists(directory_.state() + "/incoming/mine"));
  EXPECT_TRUE(FinishUpload("uploads/mine", &upload, "once").ok()) << "the first reply again";
  EXPECT_TRUE(FinishUpload("uploads/mine", &upload).ok()) << "changes nothing";
  EXPECT_EQ(ReasonFor(Write("uploads/mine", "config.json", "{}x", 2)), reason::kUploadNotFound);

  Restart();
  EXPECT_TRUE(Get("uploads/mine").complete());
  EXPECT_THAT(Files("uploads/mine"),
              ElementsAre(absl::StrCat("config.json:2:", Sha256Of(small).substr(0, 4)),
                          absl::StrCat("empty:0:", Sha256Of("").substr(0, 4)),
                          absl::StrCat("weights/w.bin:3500000:", Sha256Of(big).substr(0, 4))));
  const Fetched whole = Read("uploads/mine", "weights/w.bin");
  EXPECT_TRUE(whole.status.ok());
  EXPECT_EQ(whole.data, big);
  EXPECT_EQ(whole.sha256, Sha256Of(big));
  const Fetched rest = Read("uploads/mine", "weights/w.bin", 3'000'001);
  EXPECT_EQ(rest.data, big.substr(3'000'001));
  EXPECT_EQ(rest.sha256, Sha256Of(big));
  EXPECT_EQ(Read("uploads/mine", "weights/w.bin", 3'500'000).sha256, Sha256Of(big));
  EXPECT_EQ(ReasonFor(Read("uploads/mine", "weights/w.bin", 3'500'001).status),
            reason::kRequestInvalid);
  EXPECT_EQ(ReasonFor(Read("uploads/mine", "weights/w.bin", -1).status), reason::kRequestInvalid);

  ASSERT_TRUE(Delete("uploads/mine", "d").ok());
  EXPECT_TRUE(Delete("uploads/mine", "d").ok()) << "the first reply again";
  EXPECT_FALSE(fs::exists(upload.directory()));
  EXPECT_EQ(ReasonFor(Delete("uploads/mine")), reason::kUploadNotFound);
}

TEST_F(TransferTest, OnlyTheRightOffsetIsTakenAndSaid) {
  Start();
  const std::string content = Content(100'000);
  ASSERT_TRUE(Create("mine", {Entry("f", content)}).ok());
  ASSERT_TRUE(Write("uploads/mine", "f", content.substr(0, 60'000), 0, 7'000).ok());
  for (const int64_t offset : {int64_t{0}, int64_t{59'999}, int64_t{60'001}, int64_t{99'999}}) {
    const grpc::Status refused = Write("uploads/mine", "f", content, offset);
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::OUT_OF_RANGE) << offset;
    EXPECT_EQ(ReasonFor(refused), reason::kUploadOffset);
    EXPECT_EQ(ErrorInfoOf(refused).metadata().at("offset"), "60000");
  }
  Restart();
  EXPECT_THAT(Received("uploads/mine"), ElementsAre(60'000)) << "a restart forgets nothing";
  ASSERT_TRUE(Write("uploads/mine", "f", content, 60'000).ok());
  v1::Upload upload;
  ASSERT_TRUE(FinishUpload("uploads/mine", &upload).ok());
  EXPECT_EQ(ReadFile(upload.directory() + "/f"), content);
}

TEST_F(TransferTest, PiecesThatCannotBeAreRefusedAndNothingOfThemKept) {
  Start();
  ASSERT_TRUE(Create("mine", {Entry("d/f", "0123456789"), Entry("g", "x")}).ok());
  v1::WriteUploadRequest good;
  good.set_name("uploads/mine");
  good.set_path("d/f");
  good.set_data("01234");
  good.set_crc32c(Crc32c(good.data()));
  const auto refused = [&](const std::function<void(v1::WriteUploadRequest&)>& spoil) {
    v1::WriteUploadRequest request = good;
    spoil(request);
    return ReasonFor(WriteOne(request));
  };
  EXPECT_EQ(refused([](auto& r) { r.set_crc32c(r.crc32c() + 1); }), reason::kUploadCorrupt);
  EXPECT_EQ(refused([](auto& r) {
              r.set_data("0123456789A");
              r.set_crc32c(Crc32c(r.data()));
            }),
            reason::kRequestInvalid)
      << "more than was announced";
  EXPECT_EQ(refused([](auto& r) {
              r.set_data(std::string((1 << 20) + 1, 'x'));
              r.set_crc32c(Crc32c(r.data()));
            }),
            reason::kRequestInvalid)
      << "too large";
  for (const char* path : {"", "f", "d", "d/../d/f", "../mine/d/f", "/etc/passwd", "d//f"}) {
    EXPECT_EQ(refused([&](auto& r) { r.set_path(path); }), reason::kFileNotFound) << path;
  }
  for (const char* name : {"", "mine", "uploads/", "uploads/..", "uploads/../uploads/mine",
                           "uploads/mine/", "jobs/mine", "uploads/m\nx1"}) {
    EXPECT_EQ(refused([&](auto& r) { r.set_name(name); }), reason::kRequestInvalid) << name;
  }
  EXPECT_EQ(refused([](auto& r) { r.set_name("uploads/other"); }), reason::kUploadNotFound);
  EXPECT_THAT(Received("uploads/mine"), ElementsAre(0, 0));
  {
    // One call, one file.
    grpc::ClientContext context;
    v1::WriteUploadResponse response;
    const auto writer = client_->transfers->WriteUpload(&context, &response);
    writer->Write(good);
    v1::WriteUploadRequest other = good;
    other.set_path("g");
    writer->Write(other);
    writer->WritesDone();
    EXPECT_EQ(ReasonFor(writer->Finish()), reason::kRequestInvalid);
  }
  {
    grpc::ClientContext context;
    v1::WriteUploadResponse response;
    const auto writer = client_->transfers->WriteUpload(&context, &response);
    writer->WritesDone();
    EXPECT_EQ(ReasonFor(writer->Finish()), reason::kRequestInvalid) << "no message at all";
  }
  EXPECT_THAT(Received("uploads/mine"), ElementsAre(5, 0));
}

TEST_F(TransferTest, AFileWithAnotherHashIsNamedAndSentAgain) {
  Start();
  const std::string right = Content(50'000);
  std::string wrong = right;
  wrong[25'000] ^= 1;
  ASSERT_TRUE(Create("mine", {Entry("a", "a"), Entry("f", right)}).ok());
  ASSERT_TRUE(Write("uploads/mine", "a", "a", 0).ok());
  ASSERT_TRUE(Write("uploads/mine", "f", wrong, 0).ok());
  const grpc::Status refused = FinishUpload("uploads/mine");
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(ReasonFor(refused), reason::kUploadCorrupt);
  EXPECT_EQ(ErrorInfoOf(refused).metadata().at("file"), "f");
  EXPECT_THAT(Received("uploads/mine"), ElementsAre(1, 0));
  EXPECT_FALSE(fs::exists(directory_.state() + "/uploads/mine"));
  ASSERT_TRUE(Write("uploads/mine", "f", right, 0).ok());
  EXPECT_TRUE(FinishUpload("uploads/mine").ok());
}

// The hash of a stream that began at 0 counts; what lies in the file must still be looked at when
// another stream wrote a part of it.
TEST_F(TransferTest, BytesOfTwoStreamsAreHashedFromTheFile) {
  Start();
  const std::string content = Content(20'000);
  std::string half = content.substr(0, 10'000);
  half[0] ^= 1;
  ASSERT_TRUE(Create("mine", {Entry("f", content)}).ok());
  ASSERT_TRUE(Write("uploads/mine", "f", half, 0).ok());
  ASSERT_TRUE(Write("uploads/mine", "f", content, 10'000).ok());
  EXPECT_EQ(ReasonFor(FinishUpload("uploads/mine")), reason::kUploadCorrupt);
}

TEST_F(TransferTest, CreatingIsAnsweredOnceAndIdsAreTakenOnce) {
  Start();
  v1::Upload first, second;
  ASSERT_TRUE(Create("", {Entry("f", "x")}, &first, "r1").ok());
  ASSERT_TRUE(Create("", {Entry("f", "x")}, &second, "r1").ok());
  EXPECT_EQ(first.name(), second.name());
  EXPECT_EQ(ReasonFor(Create("", {Entry("g", "x")}, nullptr, "r1")), reason::kRequestIdReused);
  ASSERT_TRUE(Create("mine", {Entry("f", "x")}).ok());
  EXPECT_EQ(ReasonFor(Create("mine", {Entry("f", "x")})), reason::kUploadExists);
  EXPECT_THAT(Names(), ElementsAre("uploads/mine", first.name()));
  for (const std::string& id : {std::string(".."), std::string("a/b1"), std::string("abc"),
                                std::string("new\nline"), std::string(300, 'a')}) {
    EXPECT_EQ(ReasonFor(Create(id, {Entry("f", "x")})), reason::kRequestInvalid) << id;
  }
  for (const char* path : {"../x.safetensors", "/etc/passwd", "a/../../x", "", "a\nb", "."}) {
    EXPECT_EQ(ReasonFor(Create("other", {Entry(path, "x")})), reason::kRequestInvalid) << path;
  }
  EXPECT_EQ(fs::exists(directory_.state() + "/incoming/other"), false);
}

TEST_F(TransferTest, RoomIsLookedForBeforeAByteIsSent) {
  options_.max_upload_bytes = 1000;
  Start();
  ASSERT_TRUE(Create("first", {Entry("f", std::string(600, 'x'))}).ok());
  const grpc::Status refused = Create("second", {Entry("f", std::string(401, 'x'))});
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonFor(refused), reason::kUploadLimit);
  EXPECT_EQ(ErrorInfoOf(refused).metadata().at("used_bytes"), "600");
  ASSERT_TRUE(Delete("uploads/first").ok());
  EXPECT_TRUE(Create("second", {Entry("f", std::string(401, 'x'))}).ok());

  daemon_.reset();
  options_.max_upload_bytes = INT64_MAX;
  Start();
  v1::FileEntry huge = Entry("f", "");
  huge.set_bytes(int64_t{1} << 60);
  EXPECT_EQ(ReasonFor(Create("third", {huge})), reason::kDiskInsufficient);
  EXPECT_THAT(Names(), ElementsAre("uploads/second"));
}

TEST_F(TransferTest, AnUploadThatNobodyGoesOnWithExpires) {
  Start();
  ASSERT_TRUE(Create("left", {Entry("f", "xy")}).ok());
  ASSERT_TRUE(Create("done", {Entry("f", "x")}).ok());
  ASSERT_TRUE(Write("uploads/done", "f", "x", 0).ok());
  ASSERT_TRUE(FinishUpload("uploads/done").ok());
  options_.upload_lifetime = std::chrono::seconds(1);
  Restart();
  grpc::Status status;
  for (int i = 0; i < 3000; ++i) {
    Get("uploads/left", &status);
    if (!status.ok()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(ReasonFor(status), reason::kUploadNotFound);
  EXPECT_EQ(ReasonFor(Write("uploads/left", "f", "xy", 0)), reason::kUploadNotFound);
  EXPECT_FALSE(fs::exists(directory_.state() + "/incoming/left"));
  EXPECT_THAT(Names(), ElementsAre("uploads/done")) << "a complete one stays";
}

TEST_F(TransferTest, AJobKeepsItsUploadAndOthersCannotBeNamed) {
  Start();
  ASSERT_TRUE(Create("data", {Entry("rows.jsonl", "{}")}).ok());
  const std::string path = directory_.state() + "/uploads/data/rows.jsonl";
  v1::CreateJobRequest request = MakeRequest({{"steps", "100000"}, {"step_ms", "5"}});
  request.mutable_spec()->mutable_data()->add_paths(path);
  v1::Job job;
  EXPECT_EQ(ReasonFor(client_->Create(request, &job)), reason::kUploadIncomplete);
  ASSERT_TRUE(Write("uploads/data", "rows.jsonl", "{}", 0).ok());
  ASSERT_TRUE(FinishUpload("uploads/data").ok());
  ASSERT_TRUE(client_->Create(request, &job).ok());
  const grpc::Status refused = Delete("uploads/data");
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ReasonFor(refused), reason::kUploadInUse);
  EXPECT_THAT(refused.error_message(), HasSubstr(job.name()));
  {
    grpc::ClientContext context;
    v1::CancelJobRequest cancel;
    v1::CancelJobResponse response;
    cancel.set_name(job.name());
    ASSERT_TRUE(client_->jobs->CancelJob(&context, cancel, &response).ok());
  }
  client_->WaitForEnd(job.name());
  EXPECT_TRUE(Delete("uploads/data").ok());
  EXPECT_EQ(ReasonFor(client_->Create(request, &job)), reason::kUploadNotFound);
  request.mutable_spec()->clear_data();
  request.mutable_spec()->set_start_checkpoint("uploads/data");
  EXPECT_EQ(ReasonFor(client_->Create(request, &job)), reason::kUploadNotFound);
  request.mutable_spec()->set_start_checkpoint("uploads/../jobs");
  EXPECT_EQ(ReasonFor(client_->Create(request, &job)), reason::kRequestInvalid);
  request.mutable_spec()->clear_start_checkpoint();
  request.mutable_spec()->mutable_output()->set_directory(directory_.state() + "/uploads/out");
  EXPECT_EQ(ReasonFor(client_->Create(request, &job)), reason::kPathNotAllowed)
      << "nobody writes among the uploads";
}

TEST_F(TransferTest, AJobStartsFromACheckpointThatWasSent) {
  Start();
  ASSERT_TRUE(Create("ckpt", {Entry("manifest.json", "{}")}).ok());
  ASSERT_TRUE(Write("uploads/ckpt", "manifest.json", "{}", 0).ok());
  ASSERT_TRUE(FinishUpload("uploads/ckpt").ok());
  v1::CreateJobRequest request = MakeRequest({{"steps", "2"}});
  request.mutable_spec()->set_start_checkpoint("uploads/ckpt");
  v1::Job job;
  ASSERT_TRUE(client_->Create(request, &job).ok());
  client_->WaitForEnd(job.name());
  internal::Assignment assignment;
  ASSERT_TRUE(assignment.ParseFromString(
      ReadFile(absl::StrCat(directory_.state(), "/", job.name(), "/attempts/1/assignment.pb"))));
  EXPECT_EQ(assignment.start_checkpoint_directory(), directory_.state() + "/uploads/ckpt");
}

TEST_F(TransferTest, AsManyFilesMoveAtOnceAsMay) {
  options_.max_streams = 2;
  Start();
  const std::string content = Content(10);
  ASSERT_TRUE(Create("mine", {Entry("f", content)}).ok());
  grpc::ClientContext contexts[2];
  v1::WriteUploadResponse responses[2];
  std::vector<std::unique_ptr<grpc::ClientWriter<v1::WriteUploadRequest>>> open;
  for (int i = 0; i < 2; ++i) {
    open.push_back(client_->transfers->WriteUpload(&contexts[i], &responses[i]));
    v1::WriteUploadRequest nothing;
    nothing.set_name("uploads/mine");
    nothing.set_path("f");
    ASSERT_TRUE(open.back()->Write(nothing));
  }
  // Until both have begun a third one is taken, and ends for want of a message.
  std::string refused;
  for (int i = 0; i < 1000 && refused != reason::kTooManyStreams; ++i) {
    refused = ReasonFor(Write("uploads/mine", "f", "", 0));
  }
  EXPECT_EQ(refused, reason::kTooManyStreams);
  for (int i = 0; i < 2; ++i) contexts[i].TryCancel();
  for (const auto& writer : open) writer->Finish();
  grpc::Status taken;
  for (int i = 0; i < 1000; ++i) {
    if ((taken = Write("uploads/mine", "f", content, Received("uploads/mine")[0])).ok()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(taken.ok()) << "cancelled streams give their place back: " << taken.error_message();
}

}  // namespace
}  // namespace penstock::server
