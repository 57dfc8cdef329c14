// Who may do what, as tables: no daemon runs here.
#include <atomic>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/provenance/sha256.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "penstock/v1/admin_service.pb.h"
#include "penstock/v1/checkpoint_service.pb.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/transfer_service.pb.h"
#include "server/access/audit_chain.h"
#include "server/access/call.h"
#include "server/access/method_table.h"
#include "server/access/owner_index.h"
#include "server/access/quota.h"
#include "server/access/rate_limit.h"
#include "server/access/token_book.h"
#include "server/jobs/task_queue.h"
#include "server/reasons.h"
#include "tests/server/public_methods.h"

namespace penstock::server {
namespace {

using testing::HasSubstr;

TEST(MethodTableTest, HasEveryRpcOfEveryPublicServiceAndNoOther) {
  std::set<std::string> declared, listed;
  for (const auto* method : PublicMethods()) declared.insert(FullName(*method));
  for (const MethodRule& rule : MethodTable()) {
    EXPECT_TRUE(listed.insert(std::string(rule.method)).second) << rule.method << " twice";
  }
  EXPECT_EQ(declared, listed);
  EXPECT_GT(declared.size(), 30u);
}

TEST(MethodTableTest, WhatChangesSomethingNeedsAtLeastAUserAndResourcesAreFields) {
  for (const auto* method : PublicMethods()) {
    const MethodRule* const rule = FindRule(FullName(*method));
    ASSERT_NE(rule, nullptr);
    if (rule->effect != Effect::kReads) {
      EXPECT_GE(rule->role, v1::ROLE_USER) << rule->method;
    }
    // A request with an id for repeats has an effect to repeat.
    const bool repeats = method->input_type()->FindFieldByName("request_id") != nullptr;
    if (repeats) {
      EXPECT_EQ(rule->effect, Effect::kChanges) << rule->method;
    }
    if (rule->whose == Whose::kOwners && !method->client_streaming()) {
      EXPECT_FALSE(rule->resource.empty()) << rule->method;
    }
    const google::protobuf::Descriptor* message = method->input_type();
    std::string rest(rule->resource);
    while (!rest.empty()) {
      const size_t dot = rest.find('.');
      const auto* field = message->FindFieldByName(rest.substr(0, dot));
      ASSERT_NE(field, nullptr) << rule->method << " has no field " << rest;
      message = field->message_type();
      rest = dot == std::string::npos ? "" : rest.substr(dot + 1);
      EXPECT_EQ(message == nullptr, rest.empty()) << rule->method;
    }
  }
}

TEST(MethodTableTest, ReadsResources) {
  v1::CancelJobRequest cancel;
  cancel.set_name("jobs/abcd");
  EXPECT_EQ(ResourceOf(*FindRule("penstock.v1.JobService/CancelJob"), cancel), "jobs/abcd");
  v1::ExportCheckpointRequest export_request;
  export_request.mutable_spec()->set_checkpoint("jobs/abcd/checkpoints/7");
  const MethodRule& rule = *FindRule("penstock.v1.CheckpointService/ExportCheckpoint");
  EXPECT_EQ(ResourceOf(rule, export_request), "jobs/abcd/checkpoints/7");
  EXPECT_EQ(FindRule("penstock.v1.JobService/Nothing"), nullptr);
}

v1::Caller Who(const std::string& user, v1::Role role) {
  v1::Caller caller;
  caller.set_user(user);
  caller.set_role(role);
  return caller;
}

TEST(RulesTest, RolesIncludeThoseBelow) {
  const MethodRule& read = *FindRule("penstock.v1.JobService/GetJob");
  const MethodRule& change = *FindRule("penstock.v1.JobService/CreateJob");
  const MethodRule& admin = *FindRule("penstock.v1.AdminService/CreateToken");
  for (const auto& [role, may_read, may_change, may_admin] :
       {std::tuple{v1::ROLE_UNSPECIFIED, false, false, false},
        std::tuple{v1::ROLE_VIEWER, true, false, false},
        std::tuple{v1::ROLE_USER, true, true, false},
        std::tuple{v1::ROLE_ADMIN, true, true, true}}) {
    EXPECT_EQ(CheckRole(read, Who("eve", role)).ok(), may_read);
    EXPECT_EQ(CheckRole(change, Who("eve", role)).ok(), may_change);
    EXPECT_EQ(CheckRole(admin, Who("eve", role)).ok(), may_admin);
  }
  const absl::Status refused = CheckRole(admin, Who("eve", v1::ROLE_USER));
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ReasonOf(refused), reason::kRoleInsufficient);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("needs the role admin"));
}

TEST(RulesTest, OwnersAndAdminsChangeAJob) {
  EXPECT_TRUE(CheckOwner(Who("ann", v1::ROLE_USER), "jobs/x", "ann").ok());
  EXPECT_TRUE(CheckOwner(Who("bob", v1::ROLE_ADMIN), "jobs/x", "ann").ok());
  EXPECT_TRUE(CheckOwner(Who("bob", v1::ROLE_ADMIN), "jobs/x", "").ok());
  EXPECT_EQ(ReasonOf(CheckOwner(Who("bob", v1::ROLE_USER), "jobs/x", "ann")), reason::kNotOwner);
  // Nobody is a user without a name.
  EXPECT_FALSE(CheckOwner(Who("bob", v1::ROLE_USER), "jobs/x", "").ok());
  EXPECT_FALSE(CheckOwner(Who("", v1::ROLE_USER), "jobs/x", "").ok());
}

TEST(RulesTest, TheOwnedPartIsTheJobOrUpload) {
  EXPECT_EQ(OwnedPart("jobs/x/checkpoints/5"), "jobs/x");
  EXPECT_EQ(OwnedPart("jobs/x"), "jobs/x");
  EXPECT_EQ(OwnedPart("uploads/y"), "uploads/y");
  EXPECT_EQ(OwnedPart("jobs"), "jobs");
  EXPECT_EQ(OwnedPart(""), "");
}

TEST(QuotaTest, OwnEntryElseTheStar) {
  internal::UserQuota ann, others;
  ann.set_user("ann");
  ann.set_running_jobs(3);
  others.set_user("*");
  others.set_running_jobs(1);
  EXPECT_EQ(QuotaOf({others, ann}, "ann").running_jobs(), 3);
  EXPECT_EQ(QuotaOf({others, ann}, "bob").running_jobs(), 1);
  EXPECT_EQ(QuotaOf({ann}, "bob").running_jobs(), 0);
}

TEST(RateLimitTest, BurstsThenTheRateAndNeverMoreThanTheBurst) {
  absl::Time now = absl::FromUnixSeconds(1000);
  std::optional<RateBucket> bucket;
  const auto take = [&] {
    const RateAnswer answer = TakeCall(bucket, now, /*per_second=*/2, /*burst=*/4);
    bucket = answer.bucket;
    return answer.wait;
  };
  for (int i = 0; i < 4; ++i) EXPECT_EQ(take(), absl::ZeroDuration()) << i;
  EXPECT_EQ(take(), absl::Milliseconds(500));
  now += absl::Milliseconds(250);
  EXPECT_EQ(take(), absl::Milliseconds(250));  // a refused call costs nothing
  now += absl::Milliseconds(250);
  EXPECT_EQ(take(), absl::ZeroDuration());
  EXPECT_GT(take(), absl::ZeroDuration());
  now -= absl::Hours(1);  // the clock was set back
  EXPECT_GT(take(), absl::ZeroDuration());
  now += absl::Hours(24);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(take(), absl::ZeroDuration()) << i;
  EXPECT_GT(take(), absl::ZeroDuration());
}

TEST(RateLimitTest, UsersHaveBucketsOfTheirOwnAndZeroIsNoLimit) {
  const absl::Time now = absl::FromUnixSeconds(1000);
  RateLimiter limiter(1);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(limiter.Take("ann", now), absl::ZeroDuration());
  EXPECT_EQ(limiter.Take("ann", now), absl::Seconds(1));
  EXPECT_EQ(limiter.Take("bob", now), absl::ZeroDuration());
  RateLimiter none(0);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(none.Take("ann", now), absl::ZeroDuration());
}

TEST(TokenBookTest, ChecksExpiryRevocationAndNotesUseOnceAMinute) {
  std::vector<std::string> uses;
  TokenBook book([&](const std::string& name, absl::Time) { uses.push_back(name); });
  const std::string secret = NewTokenSecret();
  EXPECT_EQ(secret.size(), 68u);
  EXPECT_NE(secret, NewTokenSecret());
  v1::Token token;
  token.set_name("tokens/a");
  token.set_user("ann");
  token.set_role(v1::ROLE_USER);
  token.mutable_expire_time()->set_seconds(2000);
  book.Add(token, TokenHash(secret));

  const auto at = [&](int64_t seconds) {
    return book.Check(secret, absl::FromUnixSeconds(seconds));
  };
  ASSERT_TRUE(at(1000).ok());
  EXPECT_EQ(at(1059)->caller.user(), "ann");
  EXPECT_EQ(uses.size(), 1u);
  ASSERT_TRUE(at(1060).ok());
  EXPECT_EQ(uses.size(), 2u);
  EXPECT_EQ(ReasonOf(at(2000).status()), reason::kTokenExpired);
  EXPECT_THAT(std::string(at(2000).status().message()), HasSubstr("the daemon's clock says"));

  const auto identity = at(1000);
  Call call;
  call.identity = *identity;
  EXPECT_FALSE(call.RightHasEnded(absl::FromUnixSeconds(1999)));
  EXPECT_TRUE(call.RightHasEnded(absl::FromUnixSeconds(2000)));
  book.Revoke("tokens/a");
  EXPECT_TRUE(call.RightHasEnded(absl::FromUnixSeconds(1000)));
  EXPECT_EQ(ReasonOf(at(1000).status()), reason::kTokenRevoked);

  for (const std::string& wrong :
       {std::string(), secret.substr(1), secret + "0", TokenHash(secret)}) {
    const absl::Status refused = book.Check(wrong, absl::FromUnixSeconds(1000)).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnauthenticated);
    EXPECT_EQ(ReasonOf(refused), reason::kTokenInvalid);
    EXPECT_THAT(std::string(refused.message()), testing::Not(HasSubstr("pst_")));
  }
}

std::vector<v1::AuditEntry> MakeLog(int entries) {
  std::vector<v1::AuditEntry> log;
  std::string before = FirstAuditHash();
  for (int i = 1; i <= entries; ++i) {
    v1::AuditEntry& entry = log.emplace_back();
    entry.set_sequence(i);
    entry.mutable_time()->set_seconds(1000 + i);
    entry.set_user("ann");
    entry.set_role(v1::ROLE_USER);
    entry.set_token("tokens/a");
    entry.set_peer("unix");
    entry.set_method("penstock.v1.JobService/CancelJob");
    entry.set_resource("jobs/x");
    entry.set_request_sha256(Sha256Of("request"));
    entry.set_hash(AuditHash(before, entry));
    before = entry.hash();
  }
  return log;
}

absl::Status Follow(const std::vector<v1::AuditEntry>& log, const v1::AuditEntry& last) {
  AuditChain chain;
  for (const v1::AuditEntry& entry : log) {
    PENSTOCK_RETURN_IF_ERROR(chain.Follow(entry));
  }
  return chain.CheckEnd(last.sequence(), last.hash());
}

TEST(AuditChainTest, HashIsAsDocumented) {
  // "sha256 of the entry before it, then of this one's fields in the order above, each as its
  // length in eight bytes, the lowest first, and its text": written out here a second time.
  const auto field = [](const std::string& text) {
    return std::string(1, static_cast<char>(text.size())) + std::string(7, '\0') + text;
  };
  v1::AuditEntry entry = MakeLog(1)[0];
  EXPECT_EQ(entry.hash(), Sha256Of(field(std::string(64, '0')) + field("1") + field("1001") +
                                   field("ann") + field("2") + field("tokens/a") + field("unix") +
                                   field("penstock.v1.JobService/CancelJob") + field("jobs/x") +
                                   field(Sha256Of("request"))));
  EXPECT_EQ(Sha256Of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(AuditChainTest, EveryChangeShows) {
  const std::vector<v1::AuditEntry> log = MakeLog(5);
  ASSERT_TRUE(Follow(log, log.back()).ok());
  const auto broken = [&](std::vector<v1::AuditEntry> changed) {
    const absl::Status status = Follow(changed, log.back());
    return ReasonOf(status) == reason::kAuditBroken && status.code() == absl::StatusCode::kDataLoss;
  };
  for (size_t i = 0; i < log.size(); ++i) {
    for (const auto edit :
         {+[](v1::AuditEntry& e) { e.set_user("bob"); },
          +[](v1::AuditEntry& e) { e.set_role(v1::ROLE_ADMIN); },
          +[](v1::AuditEntry& e) { e.set_resource("jobs/y"); },
          +[](v1::AuditEntry& e) { e.mutable_time()->set_seconds(1); },
          +[](v1::AuditEntry& e) { e.set_token(""); }, +[](v1::AuditEntry& e) { e.set_peer(""); },
          +[](v1::AuditEntry& e) { e.set_method(""); },
          +[](v1::AuditEntry& e) { e.set_request_sha256(""); },
          +[](v1::AuditEntry& e) { e.set_sequence(9); },
          +[](v1::AuditEntry& e) { e.set_hash(FirstAuditHash()); },
          // Text moved from one field to its neighbour.
          +[](v1::AuditEntry& e) {
            e.set_user("");
            e.set_token("anntokens/a");
          }}) {
      auto changed = log;
      edit(changed[i]);
      EXPECT_TRUE(broken(changed)) << i;
    }
    auto removed = log;
    removed.erase(removed.begin() + static_cast<int64_t>(i));
    EXPECT_TRUE(broken(removed)) << i;
    auto twice = log;
    twice.insert(twice.begin() + static_cast<int64_t>(i), log[i]);
    EXPECT_TRUE(broken(twice)) << i;
    if (i > 0) {
      auto swapped = log;
      std::swap(swapped[i], swapped[i - 1]);
      EXPECT_TRUE(broken(swapped)) << i;
    }
  }
  EXPECT_TRUE(broken({}));
  EXPECT_TRUE(Follow({}, v1::AuditEntry()).ok());  // nothing was ever written
}

TEST(CallTest, GoesWithPostedTasksAndNotWithDelayedOnes) {
  TaskQueue first("first"), second("second");
  std::string posted = "?", delayed = "?", after = "?", second_hop = "?";
  {
    auto call = std::make_shared<Call>();
    call->identity.caller.set_user("ann");
    const CallScope scope(call);
    first.Post([&] {
      posted = CurrentUser();
      second.Post([&] { second_hop = CurrentUser(); });
      first.PostAfter(std::chrono::milliseconds(1), [&] { delayed = CurrentUser(); });
    });
  }
  EXPECT_EQ(CurrentCall(), nullptr);
  first.Post([&] { after = CurrentUser(); });
  while (true) {  // until the delayed one has run
    std::atomic<bool> seen = false, done = false;
    first.Post([&] {
      seen = delayed != "?";
      done = true;
    });
    while (!done) std::this_thread::yield();
    if (seen) break;
  }
  first.Stop();
  second.Stop();
  EXPECT_EQ(posted, "ann");
  EXPECT_EQ(second_hop, "ann");
  EXPECT_EQ(delayed, "");
  EXPECT_EQ(after, "");
}

}  // namespace
}  // namespace penstock::server
