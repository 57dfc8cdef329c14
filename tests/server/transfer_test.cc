// Uploads, downloads and traces of a daemon, over its socket.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/base/crc32c.h"
#include "engine/base/relative_path.h"
#include "engine/base/status.h"
#include "engine/provenance/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/jobs/request_checks.h"
#include "server/reasons.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/test_support.h"

namespace penstock::server {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using Stub = v1::TransferService::Stub;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

v1::FileEntry Entry(const std::string& path, const std::string& content) {
  v1::FileEntry entry;
  entry.set_path(path);
  entry.set_bytes(static_cast<int64_t>(content.size()));
  entry.set_sha256(Sha256Of(content));
  return entry;
}

// Of pieces whose order would show.
std::string Content(size_t bytes) {
  std::string content(bytes, '\0');
  uint32_t state = 1;
  for (char& c : content) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return content;
}

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

class TransferTest : public DaemonTest {
 protected:
  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    return (client_->transfers.get()->*method)(&context, request, response);
  }

  grpc::Status Create(const std::string& id, const std::vector<v1::FileEntry>& files,
                      v1::Upload* upload = nullptr, const std::string& request_id = "") {
    v1::CreateUploadRequest request;
    request.set_upload_id(id);
    request.set_request_id(request_id);
    for (const v1::FileEntry& file : files) *request.add_files() = file;
    v1::CreateUploadResponse response;
    const grpc::Status status = Call(&Stub::CreateUpload, request, &response);
    if (upload != nullptr) *upload = response.upload();
    return status;
  }
  v1::Upload Get(const std::string& name, grpc::Status* status = nullptr) {
    v1::GetUploadRequest request;
    request.set_name(name);
    v1::GetUploadResponse response;
    const grpc::Status got = Call(&Stub::GetUpload, request, &response);
    if (status != nullptr) {
      *status = got;
    } else {
      EXPECT_TRUE(got.ok()) << got.error_message();
    }
    return response.upload();
  }
  std::vector<int64_t> Received(const std::string& name) {
    const v1::Upload upload = Get(name);
    return {upload.received_bytes().begin(), upload.received_bytes().end()};
  }
  // Sends content[offset..] in pieces.
  grpc::Status Write(const std::string& name, const std::string& path, const std::string& content,
                     int64_t offset, size_t piece_bytes = size_t{1} << 20) {
    grpc::ClientContext context;
    v1::WriteUploadResponse response;
    const auto writer = client_->transfers->WriteUpload(&context, &response);
    v1::WriteUploadRequest request;
    request.set_name(name);
    request.set_path(path);
    for (size_t at = static_cast<size_t>(offset); at < content.size(); at += piece_bytes) {
      request.set_offset(static_cast<int64_t>(at));
      request.set_data(content.substr(at, piece_bytes));
      request.set_crc32c(Crc32c(request.data()));
      if (!writer->Write(request)) break;
      request.clear_name();
      request.clear_path();
    }
    writer->WritesDone();
    return writer->Finish();
  }
  grpc::Status WriteOne(v1::WriteUploadRequest request) {
    grpc::ClientContext context;
    v1::WriteUploadResponse response;
    const auto writer = client_->transfers->WriteUpload(&context, &response);
    writer->Write(request);
    writer->WritesDone();
    return writer->Finish();
  }
  grpc::Status FinishUpload(const std::string& name, v1::Upload* upload = nullptr,
                            const std::string& request_id = "") {
    v1::FinishUploadRequest request;
    request.set_name(name);
    request.set_request_id(request_id);
    v1::FinishUploadResponse response;
    const grpc::Status status = Call(&Stub::FinishUpload, request, &response);
    if (upload != nullptr) *upload = response.upload();
    return status;
  }
  grpc::Status Delete(const std::string& name, const std::string& request_id = "") {
    v1::DeleteUploadRequest request;
    request.set_name(name);
    request.set_request_id(request_id);
    v1::DeleteUploadResponse response;
    return Call(&Stub::DeleteUpload, request, &response);
  }
  std::vector<std::string> Names() {
    v1::ListUploadsRequest request;
    request.set_page_size(1);
    std::vector<std::string> names;
    do {
      v1::ListUploadsResponse response;
      EXPECT_TRUE(Call(&Stub::ListUploads, request, &response).ok());
      for (const v1::Upload& upload : response.uploads()) {
        EXPECT_EQ(upload.files_size(), 0);
        names.push_back(upload.name());
      }
      request.set_page_token(response.next_page_token());
    } while (!request.page_token().empty());
    return names;
  }
  struct Fetched {
    std::string data, sha256;
    grpc::Status status;
  };
  Fetched Read(const std::string& parent, const std::string& path, int64_t offset = 0) {
    grpc::ClientContext context;
    v1::ReadFileRequest request;
    request.set_parent(parent);
    request.set_path(path);
    request.set_offset(offset);
    const auto reader = client_->transfers->ReadFile(&context, request);
    Fetched fetched;
    for (v1::ReadFileResponse piece; reader->Read(&piece);) {
      EXPECT_LE(piece.data().size(), size_t{1} << 20);
      if (piece.sha256().empty()) {
        EXPECT_EQ(piece.crc32c(), Crc32c(piece.data()));
      }
      fetched.data += piece.data();
      fetched.sha256 = piece.sha256();
    }
    fetched.status = reader->Finish();
    return fetched;
  }
  std::vector<std::string> Files(const std::string& parent, grpc::Status* status = nullptr) {
    v1::ListFilesRequest request;
    request.set_parent(parent);
    v1::ListFilesResponse response;
    const grpc::Status got = Call(&Stub::ListFiles, request, &response);
    if (status != nullptr) *status = got;
    std::vector<std::string> files;
    for (const v1::FileEntry& file : response.files()) {
      files.push_back(
          absl::StrCat(file.path(), ":", file.bytes(), ":", file.sha256().substr(0, 4)));
    }
    return files;
  }
  std::string ReasonFor(const grpc::Status& status) { return ErrorInfoOf(status).reason(); }
};

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

// ---- Traces ----

class TraceTest : public DaemonTest {
 protected:
  std::string Trace(const std::string& job, grpc::Status* status) {
    grpc::ClientContext context;
    v1::TraceJobRequest request;
    request.set_name(job);
    const auto reader = client_->jobs->TraceJob(&context, request);
    std::string text;
    for (v1::TraceJobResponse piece; reader->Read(&piece);) text += piece.chrome_trace();
    *status = reader->Finish();
    return text;
  }
};

TEST_F(TraceTest, TheTimelineOfARunningJobComesWhole) {
  Start();
  const std::string job = client_->Submit({{"steps", "100000"}, {"step_ms", "5"}});
  client_->WaitFor(job, [](const v1::Job& now) { return now.progress().step() >= 2; });
  grpc::Status status;
  const std::string first = Trace(job, &status);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(first.substr(0, 8), "{\"step\":");
  EXPECT_EQ(first.substr(first.size() - 2), "\"}");
  EXPECT_GT(first.size(), size_t{3} << 20);
  const std::string second = Trace(job, &status);
  EXPECT_TRUE(status.ok());
  EXPECT_NE(first, second) << "of another step";
  Restart();
  client_->WaitFor(job, [](const v1::Job& now) { return now.progress().step() >= 3; });
  Trace(job, &status);
  EXPECT_TRUE(status.ok()) << "of an adopted worker: " << status.error_message();
}

TEST_F(TraceTest, WithoutARunningStepThereIsNone) {
  Start();
  grpc::Status status;
  Trace("jobs/nobody", &status);
  EXPECT_EQ(ErrorInfoOf(status).reason(), reason::kJobNotFound);
  Trace("../x", &status);
  EXPECT_EQ(ErrorInfoOf(status).reason(), reason::kRequestInvalid);
  const std::string ended = client_->Submit({{"steps", "1"}});
  client_->WaitForEnd(ended);
  Trace(ended, &status);
  EXPECT_EQ(ErrorInfoOf(status).reason(), reason::kJobStateConflict);
  EXPECT_THAT(status.error_message(), HasSubstr("SUCCEEDED"));
  // One whose worker dies while the trace is waited for.
  const std::string dies = client_->Submit({{"steps", "2"}, {"stuck_at", "2"}, {"no_trace", "1"}});
  client_->WaitFor(dies, [](const v1::Job& now) { return now.progress().step() >= 1; });
  Trace(dies, &status);
  EXPECT_EQ(ErrorInfoOf(status).reason(), reason::kIoError) << "it could not be written";
}

TEST_F(TraceTest, AJobThatStopsMeanwhileGivesNone) {
  Start();
  const std::string job = client_->Submit({{"steps", "100000"}, {"hang_at", "3"}});
  client_->WaitFor(job, [](const v1::Job& now) { return now.progress().step() >= 2; });
  grpc::Status status;
  std::thread waiting([&] { Trace(job, &status); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  grpc::ClientContext context;
  v1::CancelJobRequest cancel;
  v1::CancelJobResponse response;
  cancel.set_name(job);
  EXPECT_TRUE(client_->jobs->CancelJob(&context, cancel, &response).ok());
  waiting.join();
  EXPECT_EQ(ErrorInfoOf(status).reason(), reason::kJobStateConflict) << status.error_message();
}

}  // namespace
}  // namespace penstock::server
