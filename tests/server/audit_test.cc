// The audit log of a daemon: an entry for each change, none for anything else, and no way to edit
// it that does not show.
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/provenance/sha256.h"
#include "gmock/gmock.h"
#include "penstock/v1/transfer_service.pb.h"
#include "server/access/audit_chain.h"
#include "server/access/method_table.h"
#include "server/reasons.h"
#include "server/store/access_store.h"
#include "server/store/job_store.h"
#include "server/store/sqlite.h"
#include "tests/server/door_fixture.h"
#include "tests/server/public_methods.h"

namespace penstock::server {
namespace {

class AuditTest : public DoorTest {
 protected:
  // Exactly one entry more than before, of this method.
  v1::AuditEntry ExpectOne(const std::string& method, const std::function<void()>& call) {
    const size_t before = AuditLog().size();
    call();
    const std::vector<v1::AuditEntry> log = AuditLog();
    EXPECT_EQ(log.size(), before + 1) << method;
    if (log.empty()) return {};
    EXPECT_EQ(log.back().method(), "penstock.v1." + method);
    entered_.insert(log.back().method());
    return log.back();
  }
  void ExpectNone(const std::function<void()>& call) {
    const size_t before = AuditLog().size();
    call();
    EXPECT_EQ(AuditLog().size(), before);
  }
  template <typename Response, typename Request>
  Response Do(const std::string& method, const Request& request, const Headers& headers) {
    return CallOk<Response>(tcp_, "penstock.v1." + method, request, headers);
  }
  template <typename Request>
  Request About(const std::string& name) {
    Request request;
    request.set_name(name);
    return request;
  }

  std::set<std::string> entered_;
};

TEST_F(AuditTest, EveryChangeLeavesOneEntryAndNothingElseLeavesAny) {
  Start();
  const Headers root = As("root", v1::ROLE_ADMIN);
  std::string name;
  const v1::CreateJobRequest create = MakeRequest(
      {{"steps", "1000000"}, {"step_ms", "2"}, {"checkpoint_every", "5"}, {"save_at_stop", "1"}});
  const v1::AuditEntry created = ExpectOne("JobService/CreateJob", [&] {
    name = Do<v1::CreateJobResponse>("JobService/CreateJob", create, root).job().name();
  });
  EXPECT_EQ(created.user(), "root");
  EXPECT_EQ(created.role(), v1::ROLE_ADMIN);
  EXPECT_EQ(created.resource(), name);
  EXPECT_THAT(created.token(), testing::StartsWith("tokens/"));
  EXPECT_THAT(created.peer(), testing::StartsWith("ipv4:127.0.0.1:"));
  EXPECT_EQ(created.request_sha256().size(), 64u);
  client_->WaitFor(name, [](const v1::Job& job) { return job.progress().step() >= 12; });

  ExpectNone(
      [&] { Do<v1::GetJobResponse>("JobService/GetJob", About<v1::GetJobRequest>(name), root); });
  ExpectNone([&] { Do<v1::ListJobsResponse>("JobService/ListJobs", v1::ListJobsRequest(), root); });
  for (const std::string id : {"", "save"}) {
    ExpectOne("CheckpointService/SaveCheckpoint", [&] {
      v1::SaveCheckpointRequest save;
      save.set_parent(name);
      save.set_request_id(id);
      Do<v1::SaveCheckpointResponse>("CheckpointService/SaveCheckpoint", save, root);
    });
  }
  v1::PauseJobRequest pause = About<v1::PauseJobRequest>(name);
  pause.set_request_id("pause");
  ExpectOne("JobService/PauseJob",
            [&] { Do<v1::PauseJobResponse>("JobService/PauseJob", pause, root); });
  // The same call again has no effect a second time.
  ExpectNone([&] { Do<v1::PauseJobResponse>("JobService/PauseJob", pause, root); });
  client_->WaitForState(name, v1::JOB_STATE_PAUSED);
  ExpectOne("JobService/ResumeJob", [&] {
    Do<v1::ResumeJobResponse>("JobService/ResumeJob", About<v1::ResumeJobRequest>(name), root);
  });
  client_->WaitForState(name, v1::JOB_STATE_RUNNING);
  const v1::AuditEntry cancelled = ExpectOne("JobService/CancelJob", [&] {
    Do<v1::CancelJobResponse>("JobService/CancelJob", About<v1::CancelJobRequest>(name), root);
  });
  EXPECT_EQ(cancelled.resource(), name);
  client_->WaitForEnd(name);

  // A sweep is one call, whatever the number of its jobs.
  v1::CreateSweepRequest sweep;
  *sweep.mutable_spec()->mutable_job() = create.spec();
  v1::SweepAxis& axis = *sweep.mutable_spec()->add_axes();
  axis.set_field("seed");
  axis.add_values("1");
  axis.add_values("2");
  std::string swept;
  const v1::AuditEntry made = ExpectOne("JobService/CreateSweep", [&] {
    swept = Do<v1::CreateSweepResponse>("JobService/CreateSweep", sweep, root).name();
  });
  EXPECT_EQ(made.resource(), swept);
  const v1::AuditEntry ended = ExpectOne("JobService/CancelSweep", [&] {
    EXPECT_EQ(Do<v1::CancelSweepResponse>("JobService/CancelSweep",
                                          About<v1::CancelSweepRequest>(swept), root)
                  .jobs_size(),
              2);
  });
  EXPECT_EQ(ended.resource(), swept);

  const std::string checkpoint = name + "/checkpoints/5";
  v1::PinCheckpointRequest pin = About<v1::PinCheckpointRequest>(checkpoint);
  for (const bool pinned : {true, false}) {
    pin.set_pinned(pinned);
    ExpectOne("CheckpointService/PinCheckpoint",
              [&] { Do<v1::PinCheckpointResponse>("CheckpointService/PinCheckpoint", pin, root); });
  }
  v1::ExportCheckpointRequest export_request;
  export_request.mutable_spec()->set_checkpoint(checkpoint);
  export_request.mutable_spec()->set_directory("/exported");
  std::string export_job;
  ExpectOne("CheckpointService/ExportCheckpoint", [&] {
    export_job =
        Do<v1::ExportCheckpointResponse>("CheckpointService/ExportCheckpoint", export_request, root)
            .job()
            .name();
  });
  client_->WaitForEnd(export_job);
  ExpectOne("CheckpointService/DeleteCheckpoint", [&] {
    Do<v1::DeleteCheckpointResponse>("CheckpointService/DeleteCheckpoint",
                                     About<v1::DeleteCheckpointRequest>(checkpoint), root);
  });
  ExpectOne("JobService/DeleteJob", [&] {
    Do<v1::DeleteJobResponse>("JobService/DeleteJob", About<v1::DeleteJobRequest>(name), root);
  });
  // What is refused is not entered: by the door, and by the service.
  ExpectNone([&] {
    CallRaw(tcp_, "penstock.v1.JobService/DeleteJob", About<v1::DeleteJobRequest>(name), root);
    CallRaw(tcp_, "penstock.v1.JobService/DeleteJob", About<v1::DeleteJobRequest>(name), {});
  });

  ExpectOne("AdminService/DrainServer", [&] {
    Do<v1::DrainServerResponse>("AdminService/DrainServer", v1::DrainServerRequest(), root);
  });
  std::string token;
  const v1::AuditEntry tokens = ExpectOne("AdminService/CreateToken", [&] {
    v1::CreateTokenRequest request;
    request.set_user("ann");
    request.set_role(v1::ROLE_USER);
    token = Do<v1::CreateTokenResponse>("AdminService/CreateToken", request, root).token().name();
  });
  EXPECT_EQ(tokens.resource(), token);
  ExpectOne("AdminService/RevokeToken", [&] {
    Do<v1::RevokeTokenResponse>("AdminService/RevokeToken", About<v1::RevokeTokenRequest>(token),
                                root);
  });

  v1::CreateUploadRequest upload_request;
  v1::FileEntry& file = *upload_request.add_files();
  file.set_path("empty");
  file.set_sha256(Sha256Of(""));
  std::string upload;
  const v1::AuditEntry uploads = ExpectOne("TransferService/CreateUpload", [&] {
    upload = Do<v1::CreateUploadResponse>("TransferService/CreateUpload", upload_request, root)
                 .upload()
                 .name();
  });
  EXPECT_EQ(uploads.resource(), upload);
  ExpectOne("TransferService/FinishUpload", [&] {
    Do<v1::FinishUploadResponse>("TransferService/FinishUpload",
                                 About<v1::FinishUploadRequest>(upload), root);
  });
  ExpectOne("TransferService/DeleteUpload", [&] {
    Do<v1::DeleteUploadResponse>("TransferService/DeleteUpload",
                                 About<v1::DeleteUploadRequest>(upload), root);
  });

  AuditChain chain;
  for (const v1::AuditEntry& entry : AuditLog()) EXPECT_TRUE(chain.Follow(entry).ok());
  // What was not tried here: what needs a GPU.
  std::set<std::string> untried;
  for (const MethodRule& rule : MethodTable()) {
    if (rule.effect == Effect::kChanges && !entered_.contains(std::string(rule.method))) {
      untried.insert(std::string(rule.method));
    }
  }
  EXPECT_EQ(untried, (std::set<std::string>{"penstock.v1.AdminService/CalibrateDevice",
                                            "penstock.v1.AdminService/ReleaseDevice"}));
}

TEST_F(AuditTest, EditsOfTheDatabaseShow) {
  Start();
  for (int i = 0; i < 4; ++i) MakeToken("ann", v1::ROLE_USER);
  daemon_.reset();
  // Someone who has the disk, but not what was read of the log before.
  const auto broken_after = [&](const std::string& sql) {
    auto opened = Database::Open(directory_.state() + "/jobs.db");
    EXPECT_TRUE(opened.ok()) << opened.status();
    Database& database = **opened;
    EXPECT_TRUE(database.Execute("PRAGMA locking_mode=EXCLUSIVE").ok());
    EXPECT_TRUE(database.Execute("SAVEPOINT try").ok());
    const absl::Status edited = database.Execute(sql);
    EXPECT_TRUE(edited.ok()) << edited;
    AccessStore store(database);
    AuditChain chain;
    absl::Status status;
    const auto entries = store.AuditEntries(0, 100);
    for (const v1::AuditEntry& entry : *entries) {
      status = chain.Follow(entry);
      if (!status.ok()) break;
    }
    EXPECT_TRUE(database.Execute("ROLLBACK TO try; RELEASE try").ok());
    return ReasonOf(status) == reason::kAuditBroken;
  };
  EXPECT_FALSE(broken_after("SELECT 1"));
  EXPECT_TRUE(broken_after("DELETE FROM audit WHERE sequence = 2"));
  EXPECT_TRUE(broken_after("DELETE FROM audit WHERE sequence = 1"));
  EXPECT_TRUE(
      broken_after("UPDATE audit SET message = (SELECT message FROM audit WHERE "
                   "sequence = 3) WHERE sequence = 2"));
  EXPECT_TRUE(
      broken_after("UPDATE audit SET sequence = -1 WHERE sequence = 2;"
                   "UPDATE audit SET sequence = 2 WHERE sequence = 3;"
                   "UPDATE audit SET sequence = 3 WHERE sequence = -1"));
}

// Refuses the commit: the disk is full at the worst moment.
class FailingHook : public CommitHook {
 public:
  absl::Status BeforeCommit() override { return absl::InternalError("no"); }
  void AfterCommit() override {}
};

TEST(AuditStoreTest, AnEntryAndItsEffectAreOneTransaction) {
  TestDirectory directory;
  std::filesystem::create_directory(directory.state());
  auto database = *Database::Open(directory.state() + "/db");
  ASSERT_TRUE(database->Execute("CREATE TABLE t (x INTEGER)").ok());
  FailingHook hook;
  database->set_commit_hook(&hook);
  {
    auto transaction = *Transaction::Begin(*database);
    ASSERT_TRUE(database->Execute("INSERT INTO t VALUES (1)").ok());
    EXPECT_FALSE(transaction->Commit().ok());
  }
  Statement count(*database, "SELECT COUNT(*) FROM t");
  ASSERT_TRUE(*count.Step());
  EXPECT_EQ(count.Int64(0), 0);
}

TEST(AuditStoreTest, AFailedTransactionLeavesTheCallToBeEntered) {
  TestDirectory directory;
  std::filesystem::create_directory(directory.state());
  auto store = *JobStore::Open(directory.state() + "/db");
  auto call = std::make_shared<Call>();
  call->changes = true;
  call->identity.caller.set_user("ann");
  const CallScope scope(call);
  v1::Job job;
  job.set_name("jobs/abcd");
  job.set_state(v1::JOB_STATE_QUEUED);
  ASSERT_TRUE(store->InsertJobs({job}, nullptr).ok());
  EXPECT_TRUE(call->audited);
  EXPECT_EQ(store->access().LastAuditEntry()->resource(), "jobs/abcd");
  call->audited = false;
  EXPECT_FALSE(store->InsertJobs({job}, nullptr).ok());  // exists
  EXPECT_FALSE(call->audited);
  EXPECT_EQ(store->access().LastAuditEntry()->sequence(), 1);
}

}  // namespace
}  // namespace penstock::server
