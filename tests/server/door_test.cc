// Every RPC of every service, by everybody who may not: against a daemon that serves.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "engine/base/crc32c.h"
#include "engine/base/status.h"
#include "engine/provenance/sha256.h"
#include "gmock/gmock.h"
#include "google/protobuf/dynamic_message.h"
#include "penstock/v1/transfer_service.pb.h"
#include "server/access/method_table.h"
#include "server/access/token_book.h"
#include "server/reasons.h"
#include "tests/server/door_fixture.h"
#include "tests/server/public_methods.h"

namespace penstock::server {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr char kReflection[] = "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
const std::string kListServices("\x3a\x01*", 3);  // ServerReflectionRequest.list_services

v1::Caller CallerSeen(const std::shared_ptr<grpc::Channel>& channel, const Headers& headers) {
  return CallOk<v1::GetServerInfoResponse>(channel, "penstock.v1.AdminService/GetServerInfo",
                                           v1::GetServerInfoRequest(), headers)
      .caller();
}

// The request with the field that names its resource set.
std::string RequestAbout(const google::protobuf::MethodDescriptor& method,
                         const std::string& resource) {
  google::protobuf::DynamicMessageFactory factory;
  const std::unique_ptr<google::protobuf::Message> request(
      factory.GetPrototype(method.input_type())->New());
  google::protobuf::Message* message = request.get();
  std::string field(FindRule(FullName(method))->resource);
  for (size_t dot = field.find('.'); dot != std::string::npos; dot = field.find('.')) {
    message = message->GetReflection()->MutableMessage(
        message, message->GetDescriptor()->FindFieldByName(field.substr(0, dot)));
    field = field.substr(dot + 1);
  }
  message->GetReflection()->SetString(message, message->GetDescriptor()->FindFieldByName(field),
                                      resource);
  return request->SerializeAsString();
}

void ExpectRefused(const grpc::Status& status, grpc::StatusCode code, std::string_view reason,
                   const std::string& what) {
  EXPECT_EQ(status.error_code(), code) << what << ": " << status.error_message();
  EXPECT_EQ(ErrorInfoOf(status).reason(), reason) << what;
  EXPECT_EQ(ErrorInfoOf(status).domain(), "penstock") << what;
}

TEST_F(DoorTest, NoRpcAnswersWithoutAGoodToken) {
  Start();
  const v1::CreateTokenResponse revoked = MakeToken("ann", v1::ROLE_ADMIN);
  Revoke(revoked.token().name());
  const v1::CreateTokenResponse expired = MakeToken("ann", v1::ROLE_ADMIN, /*expires_in=*/1);
  const std::string good = MakeToken("ann", v1::ROLE_ADMIN).secret();
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  const std::string unknown = "pst_" + std::string(64, '0');
  struct Case {
    std::string what;
    Headers headers;
    std::string_view reason;
  };
  const std::vector<Case> cases = {
      {"none", {}, reason::kTokenMissing},
      {"unknown", Bearer(unknown), reason::kTokenInvalid},
      {"revoked", Bearer(revoked.secret()), reason::kTokenRevoked},
      {"expired", Bearer(expired.secret()), reason::kTokenExpired},
      {"empty", Bearer(""), reason::kTokenInvalid},
      {"no scheme", {{"authorization", good}}, reason::kTokenInvalid},
      {"other scheme", {{"authorization", "Basic " + good}}, reason::kTokenInvalid},
      {"half", Bearer(good.substr(0, 40)), reason::kTokenInvalid},
      {"trailing blank", Bearer(good + "x"), reason::kTokenInvalid},
      {"two",
       {{"authorization", "Bearer " + good}, {"authorization", "Bearer " + good}},
       reason::kTokenInvalid},
      {"in another header", {{"token", good}, {"cookie", "token=" + good}}, reason::kTokenMissing},
      {"the hash", Bearer(TokenHash(good)), reason::kTokenInvalid},
  };
  for (const auto* method : PublicMethods()) {
    for (const Case& attempt : cases) {
      const RawReply reply = CallRaw(tcp_, FullName(*method), "", attempt.headers);
      ExpectRefused(reply.status, grpc::StatusCode::UNAUTHENTICATED, attempt.reason,
                    FullName(*method) + " with " + attempt.what);
      EXPECT_TRUE(reply.messages.empty());
      EXPECT_THAT(reply.status.error_message(), Not(HasSubstr(good)));
    }
    // In the path.
    const RawReply reply = CallRaw(tcp_, FullName(*method) + "?access_token=" + good, "", {});
    EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
  // As a field.
  v1::CancelJobRequest request;
  request.set_request_id(good);
  ExpectRefused(CallRaw(tcp_, "penstock.v1.JobService/CancelJob", request, {}).status,
                grpc::StatusCode::UNAUTHENTICATED, reason::kTokenMissing, "as a field");
  EXPECT_EQ(CallerSeen(tcp_, Bearer(good)).user(), "ann");
}

TEST_F(DoorTest, NoRpcAnswersARoleThatIsTooLow) {
  Start();
  const Headers viewer = As("vic", v1::ROLE_VIEWER), user = As("ann", v1::ROLE_USER);
  for (const auto* method : PublicMethods()) {
    const v1::Role needed = FindRule(FullName(*method))->role;
    for (const auto& [role, headers] :
         {std::pair{v1::ROLE_VIEWER, viewer}, std::pair{v1::ROLE_USER, user}}) {
      const grpc::Status status = CallRaw(tcp_, FullName(*method), "", headers).status;
      if (role < needed) {
        ExpectRefused(status, grpc::StatusCode::PERMISSION_DENIED, reason::kRoleInsufficient,
                      FullName(*method));
      } else {
        // It came through: refused for its contents, if at all.
        EXPECT_NE(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << FullName(*method);
        EXPECT_NE(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << FullName(*method);
      }
    }
  }
  for (const v1::AuditEntry& entry : AuditLog()) EXPECT_NE(entry.user(), "vic") << entry.method();
}

TEST_F(DoorTest, NoRpcChangesAnothersJob) {
  Start();
  const Headers ann = As("ann", v1::ROLE_USER), bob = As("bob", v1::ROLE_USER),
                root = As("root", v1::ROLE_ADMIN);
  const std::string name = Submit(ann, {});
  client_->WaitForEnd(name);
  int checked = 0;
  for (const auto* method : PublicMethods()) {
    const MethodRule& rule = *FindRule(FullName(*method));
    if (rule.whose != Whose::kOwners || method->service()->name() == "TransferService") continue;
    const bool of_checkpoint =
        method->service()->name() == "CheckpointService" && rule.resource == "name";
    const std::string request =
        RequestAbout(*method, of_checkpoint ? name + "/checkpoints/3" : name);
    ExpectRefused(CallRaw(tcp_, FullName(*method), request, bob).status,
                  grpc::StatusCode::PERMISSION_DENIED, reason::kNotOwner, FullName(*method));
    ++checked;
    if (method->name() == "DeleteJob") continue;
    // The job has ended and has no checkpoint 3: reasons of the service.
    for (const Headers& who : {ann, root}) {
      EXPECT_NE(CallRaw(tcp_, FullName(*method), request, who).status.error_code(),
                grpc::StatusCode::PERMISSION_DENIED)
          << FullName(*method);
    }
  }
  EXPECT_EQ(checked, 8);
  v1::CreateSweepRequest sweep;
  *sweep.mutable_spec()->mutable_job() = MakeRequest({{"steps", "1"}}).spec();
  v1::SweepAxis& axis = *sweep.mutable_spec()->add_axes();
  axis.set_field("seed");
  axis.add_values("1");
  v1::CancelSweepRequest cancel;
  cancel.set_name(
      CallOk<v1::CreateSweepResponse>(tcp_, "penstock.v1.JobService/CreateSweep", sweep, ann)
          .name());
  ExpectRefused(CallRaw(tcp_, "penstock.v1.JobService/CancelSweep", cancel, bob).status,
                grpc::StatusCode::PERMISSION_DENIED, reason::kNotOwner, "a sweep");
  CallOk<v1::CancelSweepResponse>(tcp_, "penstock.v1.JobService/CancelSweep", cancel, root);
  v1::DeleteJobRequest remove;
  remove.set_name(name);
  CallOk<v1::DeleteJobResponse>(tcp_, "penstock.v1.JobService/DeleteJob", remove, ann);
}

TEST_F(DoorTest, NoRpcChangesAnothersUpload) {
  Start();
  const Headers ann = As("ann", v1::ROLE_USER), bob = As("bob", v1::ROLE_USER);
  v1::CreateUploadRequest create;
  v1::FileEntry& file = *create.add_files();
  file.set_path("a.txt");
  file.set_bytes(3);
  file.set_sha256(Sha256Of("abc"));
  const v1::Upload upload = CallOk<v1::CreateUploadResponse>(
                                tcp_, "penstock.v1.TransferService/CreateUpload", create, ann)
                                .upload();
  EXPECT_EQ(upload.owner(), "ann");
  v1::WriteUploadRequest piece;
  piece.set_name(upload.name());
  piece.set_path("a.txt");
  piece.set_data("abc");
  piece.set_crc32c(Crc32c("abc"));
  v1::FinishUploadRequest finish;
  finish.set_name(upload.name());
  v1::DeleteUploadRequest remove;
  remove.set_name(upload.name());
  const std::string service = "penstock.v1.TransferService/";
  for (const bool again : {false, true}) {
    if (again) {  // the daemon knows the owners of what there was
      Restart();
      tcp_ = Connect();
    }
    ExpectRefused(CallRaw(tcp_, service + "WriteUpload", piece, bob).status,
                  grpc::StatusCode::PERMISSION_DENIED, reason::kNotOwner, "WriteUpload");
    ExpectRefused(CallRaw(tcp_, service + "FinishUpload", finish, bob).status,
                  grpc::StatusCode::PERMISSION_DENIED, reason::kNotOwner, "FinishUpload");
    ExpectRefused(CallRaw(tcp_, service + "DeleteUpload", remove, bob).status,
                  grpc::StatusCode::PERMISSION_DENIED, reason::kNotOwner, "DeleteUpload");
  }
  CallOk<v1::WriteUploadResponse>(tcp_, service + "WriteUpload", piece, ann);
  CallOk<v1::FinishUploadResponse>(tcp_, service + "FinishUpload", finish, ann);
  CallOk<v1::DeleteUploadResponse>(tcp_, service + "DeleteUpload", remove, ann);
}

TEST_F(DoorTest, JobsHaveOwnersAndListsFilterByThem) {
  Start();
  const Headers ann = As("ann", v1::ROLE_USER), vic = As("vic", v1::ROLE_VIEWER);
  const std::string anns = Submit(ann, {}), locals = client_->Submit({});
  EXPECT_EQ(client_->Get(anns).owner(), "ann");
  EXPECT_EQ(client_->Get(locals).owner(), "local");
  const auto owned_by = [&](const std::string& owner) {
    v1::ListJobsRequest request;
    request.set_owner(owner);
    std::set<std::string> names;
    const auto listed =
        CallOk<v1::ListJobsResponse>(tcp_, "penstock.v1.JobService/ListJobs", request, vic);
    for (const v1::Job& job : listed.jobs()) {
      names.insert(job.name());
    }
    return names;
  };
  EXPECT_EQ(owned_by("ann"), std::set<std::string>{anns});
  EXPECT_EQ(owned_by("local"), std::set<std::string>{locals});
  EXPECT_EQ(owned_by("bob"), std::set<std::string>{});
  EXPECT_EQ(owned_by(""), (std::set<std::string>{anns, locals}));
  // Owners are known again after a restart.
  Restart();
  tcp_ = Connect();
  ExpectRefused(CallRaw(
                    tcp_, "penstock.v1.JobService/DeleteJob",
                    [&] {
                      v1::DeleteJobRequest request;
                      request.set_name(locals);
                      return request.SerializeAsString();
                    }(),
                    ann)
                    .status,
                grpc::StatusCode::PERMISSION_DENIED, reason::kNotOwner, "after a restart");
}

TEST_F(DoorTest, LoopbackWithoutTokensIsForUsers) {
  options_.require_token = false;
  Start();
  EXPECT_TRUE(daemon_->lets_in_strangers());
  const v1::Caller anonymous = CallerSeen(tcp_, {});
  EXPECT_EQ(anonymous.user(), "anonymous");
  EXPECT_EQ(anonymous.role(), v1::ROLE_USER);
  EXPECT_EQ(CallerSeen(client_->channel, {}).user(), "local");
  EXPECT_EQ(CallerSeen(client_->channel, {}).role(), v1::ROLE_ADMIN);
  ExpectRefused(CallRaw(tcp_, "penstock.v1.AdminService/CreateToken", "", {}).status,
                grpc::StatusCode::PERMISSION_DENIED, reason::kRoleInsufficient, "a token");
  v1::CancelJobRequest cancel;
  cancel.set_name(client_->Submit({{"steps", "100000"}}));
  ExpectRefused(CallRaw(tcp_, "penstock.v1.JobService/CancelJob", cancel, {}).status,
                grpc::StatusCode::PERMISSION_DENIED, reason::kNotOwner, "the socket user's job");
  // Who shows a token is its user, there and over the socket, and a bad one is no way to be less.
  const Headers vic = As("vic", v1::ROLE_VIEWER);
  EXPECT_EQ(CallerSeen(tcp_, vic).user(), "vic");
  EXPECT_EQ(CallerSeen(client_->channel, vic).role(), v1::ROLE_VIEWER);
  ExpectRefused(CallRaw(tcp_, "penstock.v1.JobService/ListJobs", "", Bearer("pst_1")).status,
                grpc::StatusCode::UNAUTHENTICATED, reason::kTokenInvalid, "a bad token");
}

TEST_F(DoorTest, HealthAnswersAllAndReflectionThoseWhoMayRead) {
  Start();
  EXPECT_TRUE(CallRaw(tcp_, "grpc.health.v1.Health/Check", "", {}).status.ok());
  const RawReply refused = CallRaw(tcp_, kReflection, kListServices, {});
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(refused.messages.empty());
  const RawReply listed = CallRaw(tcp_, kReflection, kListServices, As("vic", v1::ROLE_VIEWER));
  EXPECT_TRUE(listed.status.ok()) << listed.status.error_message();
  ASSERT_EQ(listed.messages.size(), 1u);
  EXPECT_THAT(listed.messages[0], HasSubstr("penstock.v1.JobService"));
}

TEST_F(DoorTest, TokensAreMadeListedAndRevokedAndSurviveARestart) {
  Start();
  const v1::CreateTokenResponse made = MakeToken("ann", v1::ROLE_USER);
  EXPECT_THAT(made.secret(), testing::StartsWith("pst_"));
  const v1::CreateTokenResponse other = MakeToken("ann", v1::ROLE_USER);
  EXPECT_NE(made.token().name(), other.token().name());
  Revoke(other.token().name());
  Revoke(other.token().name());  // once more changes nothing
  EXPECT_EQ(CallerSeen(tcp_, Bearer(made.secret())).user(), "ann");

  const Headers root = As("root", v1::ROLE_ADMIN);
  v1::ListTokensRequest page;
  page.set_page_size(2);
  const auto list = [&] {
    return CallOk<v1::ListTokensResponse>(tcp_, "penstock.v1.AdminService/ListTokens", page, root);
  };
  const v1::ListTokensResponse first = list();
  ASSERT_EQ(first.tokens_size(), 2);
  EXPECT_EQ(first.tokens(0).name(), made.token().name());
  EXPECT_TRUE(first.tokens(0).has_last_use_time());
  EXPECT_FALSE(first.tokens(0).has_revoke_time());
  EXPECT_TRUE(first.tokens(1).has_revoke_time());
  page.set_page_token(first.next_page_token());
  const v1::ListTokensResponse second = list();
  ASSERT_EQ(second.tokens_size(), 1);
  EXPECT_EQ(second.tokens(0).user(), "root");
  EXPECT_EQ(second.next_page_token(), "");
  EXPECT_THAT(first.SerializeAsString(), Not(HasSubstr("pst_")));

  Restart();
  tcp_ = Connect();
  EXPECT_EQ(CallerSeen(tcp_, Bearer(made.secret())).user(), "ann");
  ExpectRefused(CallRaw(tcp_, "penstock.v1.JobService/ListJobs", "", Bearer(other.secret())).status,
                grpc::StatusCode::UNAUTHENTICATED, reason::kTokenRevoked, "after a restart");
  daemon_.reset();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_.state())) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    EXPECT_EQ(bytes.find(made.secret()), std::string::npos) << entry.path() << " has a secret";
  }
}

TEST_F(DoorTest, TokensThatCannotBeAreRefused) {
  Start();
  const auto refused = [&](const std::string& field, auto change) {
    v1::CreateTokenRequest request;
    request.set_user("ann");
    request.set_role(v1::ROLE_USER);
    change(request);
    const grpc::Status status =
        CallRaw(client_->channel, "penstock.v1.AdminService/CreateToken", request, {}).status;
    ExpectRefused(status, grpc::StatusCode::INVALID_ARGUMENT, reason::kRequestInvalid, field);
    EXPECT_EQ(ErrorInfoOf(status).metadata().at("field"), field);
  };
  for (const std::string user : {"", "Ann", "9ann", "a b", "../ann", "*"}) {
    refused("user", [&](v1::CreateTokenRequest& request) { request.set_user(user); });
  }
  refused("user", [](auto& request) { request.set_user(std::string(64, 'a')); });
  refused("role", [](auto& request) { request.set_role(v1::ROLE_UNSPECIFIED); });
  refused("role", [](auto& request) { request.set_role(static_cast<v1::Role>(4)); });
  refused("comment", [](auto& request) { request.set_comment(std::string(129, 'x')); });
  refused("comment", [](auto& request) { request.set_comment("a\nb"); });
  refused("expire_time", [](auto& request) { request.mutable_expire_time()->set_seconds(1); });
  v1::RevokeTokenRequest revoke;
  revoke.set_name("tokens/nothing");
  ExpectRefused(
      CallRaw(client_->channel, "penstock.v1.AdminService/RevokeToken", revoke, {}).status,
      grpc::StatusCode::NOT_FOUND, reason::kTokenNotFound, "revoke");
  EXPECT_TRUE(AuditLog().empty());
}

TEST_F(DoorTest, StreamsEndWithTheirToken) {
  Start();
  const std::string name = client_->Submit({{"steps", "1000000"}});
  const v1::CreateTokenResponse revoked = MakeToken("vic", v1::ROLE_VIEWER);
  const v1::CreateTokenResponse expiring = MakeToken("vic", v1::ROLE_VIEWER, /*expires_in=*/2);
  RawReply by_revoked, by_expiring;
  std::thread first([&] {
    by_revoked = CallRaw(tcp_, "penstock.v1.JobService/WatchJobs", Watch("jobs/-"),
                         Bearer(revoked.secret()));
  });
  std::thread second([&] {
    by_expiring =
        CallRaw(tcp_, "penstock.v1.JobService/WatchJobs", Watch(name), Bearer(expiring.secret()));
  });
  while (daemon_->open_streams() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  Revoke(revoked.token().name());
  first.join();
  second.join();
  ExpectRefused(by_revoked.status, grpc::StatusCode::UNAUTHENTICATED, reason::kTokenRevoked, "");
  ExpectRefused(by_expiring.status, grpc::StatusCode::UNAUTHENTICATED, reason::kTokenRevoked, "");
}

TEST_F(DoorTest, NobodyIsGivenAnothersReply) {
  Start();
  const Headers ann = As("ann", v1::ROLE_USER), bob = As("bob", v1::ROLE_USER);
  v1::CreateJobRequest request = MakeRequest({});
  request.set_request_id("same");
  const auto create = [&](const Headers& who) {
    return CallOk<v1::CreateJobResponse>(tcp_, "penstock.v1.JobService/CreateJob", request, who)
        .job();
  };
  const v1::Job anns = create(ann), bobs = create(bob);
  EXPECT_NE(anns.name(), bobs.name());
  EXPECT_EQ(bobs.owner(), "bob");
  EXPECT_EQ(create(ann).name(), anns.name());
  EXPECT_EQ(create(bob).name(), bobs.name());
  // A cancel that ann has made does not answer bob's.
  client_->WaitForEnd(anns.name());
  v1::DeleteJobRequest remove;
  remove.set_name(anns.name());
  remove.set_request_id("remove");
  CallOk<v1::DeleteJobResponse>(tcp_, "penstock.v1.JobService/DeleteJob", remove, ann);
  CallOk<v1::DeleteJobResponse>(tcp_, "penstock.v1.JobService/DeleteJob", remove, ann);
  EXPECT_EQ(CallRaw(tcp_, "penstock.v1.JobService/DeleteJob", remove, bob).status.error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(DoorTest, CallsAreLimitedForEachUser) {
  options_.calls_per_second = 1;
  Start();
  const Headers ann = As("ann", v1::ROLE_USER), bob = As("bob", v1::ROLE_USER);
  grpc::Status refused;
  for (int i = 0; i < 1000 && refused.ok(); ++i) {
    refused = CallRaw(tcp_, "penstock.v1.AdminService/ListDevices", "", ann).status;
  }
  ExpectRefused(refused, grpc::StatusCode::RESOURCE_EXHAUSTED, reason::kRateLimited, "ann");
  EXPECT_TRUE(HasDetail<google::rpc::RetryInfo>(refused));
  EXPECT_EQ(CallerSeen(tcp_, bob).user(), "bob");
  for (int i = 0; i < 30; ++i) EXPECT_EQ(CallerSeen(client_->channel, {}).user(), "local");
}

TEST_F(DoorTest, QuotasHoldJobsBackAndRefuseMoreAtSubmit) {
  internal::UserQuota& quota = options_.quotas.emplace_back();
  quota.set_user("ann");
  quota.set_running_jobs(1);
  quota.set_queued_jobs(1);
  Start();
  const Headers ann = As("ann", v1::ROLE_USER), bob = As("bob", v1::ROLE_USER);
  const std::string running = Submit(ann, {{"steps", "1000000"}});
  client_->WaitForState(running, v1::JOB_STATE_RUNNING);
  const std::string waiting = Submit(ann, {});
  const v1::Job job = client_->Get(waiting);
  EXPECT_EQ(job.state_reason(), v1::STATE_REASON_QUOTA);
  EXPECT_EQ(job.state_message(), "1 job of ann runs, and the quota is 1 (running_jobs)");
  EXPECT_EQ(client_->Get(Submit(bob, {})).state_reason(), v1::STATE_REASON_DEVICE_BUSY);
  const grpc::Status refused =
      CallRaw(tcp_, "penstock.v1.JobService/CreateJob", MakeRequest({}), ann).status;
  ExpectRefused(refused, grpc::StatusCode::RESOURCE_EXHAUSTED, reason::kQuotaExceeded, "ann");
  EXPECT_EQ(ErrorInfoOf(refused).metadata().at("queued"), "1");
  EXPECT_EQ(ErrorInfoOf(refused).metadata().at("limit"), "1");
  EXPECT_TRUE(HasDetail<google::rpc::RetryInfo>(refused));
  v1::CancelJobRequest cancel;
  cancel.set_name(running);
  CallOk<v1::CancelJobResponse>(tcp_, "penstock.v1.JobService/CancelJob", cancel, ann);
  EXPECT_EQ(client_->WaitForEnd(waiting).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(DoorTest, ADrainedServerTakesJobsAndStartsThemWhenItIsUndone) {
  Start();
  const std::string running = client_->Submit({{"steps", "1000000"}});
  client_->WaitForState(running, v1::JOB_STATE_RUNNING);
  v1::DrainServerRequest drain;
  drain.set_draining(true);
  drain.set_message("new disks");
  const auto set = [&] {
    return CallOk<v1::DrainServerResponse>(client_->channel, "penstock.v1.AdminService/DrainServer",
                                           drain, {})
        .status();
  };
  EXPECT_EQ(set(), v1::SERVER_STATUS_DRAINING);
  EXPECT_EQ(client_->Get(running).state(), v1::JOB_STATE_RUNNING);
  v1::CancelJobRequest cancel;
  cancel.set_name(running);
  CallOk<v1::CancelJobResponse>(client_->channel, "penstock.v1.JobService/CancelJob", cancel, {});
  client_->WaitForEnd(running);
  const std::string waiting = client_->Submit({});
  const v1::Job job = client_->Get(waiting);
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(job.state_reason(), v1::STATE_REASON_DRAINING);
  EXPECT_THAT(job.state_message(), HasSubstr("new disks"));
  const auto info = CallOk<v1::GetServerInfoResponse>(
      client_->channel, "penstock.v1.AdminService/GetServerInfo", v1::GetServerInfoRequest(), {});
  EXPECT_EQ(info.status(), v1::SERVER_STATUS_DRAINING);
  EXPECT_EQ(info.drain_message(), "new disks");
  drain.set_draining(false);
  EXPECT_EQ(set(), v1::SERVER_STATUS_SERVING);
  EXPECT_EQ(client_->WaitForEnd(waiting).state(), v1::JOB_STATE_SUCCEEDED);
  drain.set_message(std::string(257, 'x'));
  EXPECT_EQ(CallRaw(client_->channel, "penstock.v1.AdminService/DrainServer", drain, {})
                .status.error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace penstock::server
