#include "server/store/job_store.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <thread>

#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/state_directory.h"
#include "tests/server/test_support.h"

namespace penstock::server {
namespace {

using testing::HasSubstr;

class JobStoreTest : public testing::Test {
 protected:
  void SetUp() override { Reopen(); }
  void Reopen() {
    store_.reset();
    auto opened = JobStore::Open(path());
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
  }
  std::string path() const { return directory_.path() + "/jobs.db"; }

  v1::Job Insert(const std::string& name) {
    v1::Job job;
    job.set_name(name);
    job.set_state(v1::JOB_STATE_QUEUED);
    EXPECT_TRUE(store_->InsertJobs({job}, nullptr).ok());
    return job;
  }
  absl::Status Move(v1::Job& job, v1::JobState to) {
    const v1::JobState from = job.state();
    if (to == v1::JOB_STATE_STARTING) job.set_attempt(job.attempt() + 1);
    job.set_state(to);
    return store_->MoveJob(from, job, 0);
  }

  TestDirectory directory_;
  std::unique_ptr<JobStore> store_;
};

TEST_F(JobStoreTest, MovesAreCheckedAndSurviveReopening) {
  v1::Job job = Insert("jobs/abcd");
  EXPECT_TRUE(Move(job, v1::JOB_STATE_STARTING).ok());
  EXPECT_TRUE(Move(job, v1::JOB_STATE_RUNNING).ok());
  // The store knows better than who thinks it is still starting.
  const absl::Status stale = store_->MoveJob(v1::JOB_STATE_STARTING, job, 0);
  EXPECT_EQ(ReasonOf(stale), reason::kJobStateConflict);
  Reopen();
  EXPECT_EQ(store_->GetJob("jobs/abcd")->job.state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(store_->UnfinishedJobs()->size(), 1u);
  EXPECT_TRUE(Move(job, v1::JOB_STATE_SUCCEEDED).ok());
  EXPECT_FALSE(Move(job, v1::JOB_STATE_RUNNING).ok());
  EXPECT_TRUE(store_->UnfinishedJobs()->empty());
}

TEST_F(JobStoreTest, TheBoardShowsWhatIsStoredAndWhatIsLive) {
  v1::Job job = Insert("jobs/abcd");
  const auto shown = [&] { return *store_->board().Get("jobs/abcd"); };
  EXPECT_EQ(shown().state(), v1::JOB_STATE_QUEUED);
  LivePart live{.queue_position = 3,
                .wait_reason = v1::STATE_REASON_DEVICE_BUSY,
                .wait_message = "jobs/other has it"};
  live.progress.emplace().set_step(7);
  store_->board().SetLive("jobs/abcd", live);
  EXPECT_EQ(shown().queue_position(), 3);
  EXPECT_EQ(shown().state_message(), "jobs/other has it");
  EXPECT_EQ(shown().progress().step(), 7);
  ASSERT_TRUE(Move(job, v1::JOB_STATE_CANCELLED).ok());
  EXPECT_EQ(shown().SerializeAsString(), job.SerializeAsString()) << "nothing live is left";
  v1::Job refused = job;
  EXPECT_FALSE(Move(refused, v1::JOB_STATE_RUNNING).ok());
  EXPECT_EQ(shown().state(), v1::JOB_STATE_CANCELLED) << "what did not happen does not show";
  Reopen();
  EXPECT_EQ(shown().SerializeAsString(), job.SerializeAsString());
  ASSERT_TRUE(store_->DeleteJob("jobs/abcd", nullptr).ok());
  EXPECT_EQ(ReasonOf(store_->board().Get("jobs/abcd").status()), reason::kJobNotFound);
}

struct NamedPage {
  std::vector<std::string> names;
  JobPage page;
};
NamedPage List(const JobBoard& board, const JobQuery& query) {
  v1::ListJobsResponse response;
  NamedPage listed{.names = {}, .page = *board.List(query, *response.mutable_jobs())};
  for (const v1::Job& job : response.jobs()) listed.names.push_back(job.name());
  return listed;
}

TEST_F(JobStoreTest, TheBoardListsInPagesNewestFirst) {
  using testing::ElementsAre;
  for (const char* const name : {"jobs/a", "jobs/b", "jobs/c", "jobs/d"}) Insert(name);
  v1::Job moved = store_->GetJob("jobs/b")->job;
  ASSERT_TRUE(Move(moved, v1::JOB_STATE_CANCELLED).ok());
  const JobBoard& board = store_->board();
  const NamedPage first = List(board, {.limit = 2});
  EXPECT_THAT(first.names, ElementsAre("jobs/d", "jobs/c"));
  EXPECT_TRUE(first.page.more);
  const NamedPage second = List(board, {.before_row = first.page.last_row, .limit = 2});
  EXPECT_THAT(second.names, ElementsAre("jobs/b", "jobs/a"));
  EXPECT_FALSE(second.page.more);
  const NamedPage queued = List(board, {.states = {v1::JOB_STATE_QUEUED}, .limit = 3});
  EXPECT_THAT(queued.names, ElementsAre("jobs/d", "jobs/c", "jobs/a"));
  EXPECT_FALSE(queued.page.more) << "the one that is left is in another state";
  EXPECT_TRUE(List(board, {.owner = "somebody", .limit = 3}).names.empty());
  const NamedPage one = List(board, {.limit = 3, .max_bytes = 1});
  EXPECT_THAT(one.names, ElementsAre("jobs/d")) << "at least one, however large";
  EXPECT_TRUE(one.page.more);
  const std::vector<v1::JobState> both = {v1::JOB_STATE_QUEUED, v1::JOB_STATE_CANCELLED};
  EXPECT_THAT(List(board, {.states = both, .limit = 3}).names,
              ElementsAre("jobs/d", "jobs/c", "jobs/b"));
  EXPECT_THAT(List(board, {.states = {v1::JOB_STATE_CANCELLED}, .limit = 3}).names,
              ElementsAre("jobs/b"));
}

TEST_F(JobStoreTest, TheBoardListsJobsWithoutThePhasesOfTheirPlans) {
  v1::Job job;
  job.set_name("jobs/abcd");
  job.set_state(v1::JOB_STATE_QUEUED);
  job.mutable_plan()->set_host_peak_bytes(7);
  job.mutable_plan()->add_phases()->set_name("step");
  ASSERT_TRUE(store_->InsertJobs({job}, nullptr).ok());
  EXPECT_EQ(store_->board().Get("jobs/abcd")->plan().phases_size(), 1);
  v1::ListJobsResponse response;
  ASSERT_TRUE(store_->board().List({.limit = 2}, *response.mutable_jobs()).ok());
  ASSERT_EQ(response.jobs_size(), 1);
  EXPECT_EQ(response.jobs(0).plan().host_peak_bytes(), 7);
  EXPECT_EQ(response.jobs(0).plan().phases_size(), 0);
}

TEST_F(JobStoreTest, EventsOfAJobHaveNoGapWhateverOthersDo) {
  v1::Job first = Insert("jobs/aaaa");
  v1::Job second = Insert("jobs/bbbb");
  ASSERT_TRUE(Move(first, v1::JOB_STATE_STARTING).ok());
  ASSERT_TRUE(Move(second, v1::JOB_STATE_CANCELLED).ok());
  v1::Checkpoint checkpoint;
  checkpoint.set_step(3);
  ASSERT_TRUE(store_->AddCheckpoint("jobs/aaaa", 1, 1, checkpoint).ok());
  EXPECT_FALSE(store_->MoveJob(v1::JOB_STATE_QUEUED, first, 0).ok());  // leaves no gap
  ASSERT_TRUE(Move(first, v1::JOB_STATE_RUNNING).ok());
  const auto events = *store_->EventsAfter(0, "jobs/aaaa", 100, 1 << 20);
  ASSERT_EQ(events.size(), 4u);
  uint64_t sequence = 0;
  for (const StoredEvent& event : events) {
    EXPECT_EQ(event.message.has_state_changed() ? event.message.state_changed().sequence()
                                                : event.message.checkpoint_saved().sequence(),
              ++sequence);
  }
  EXPECT_EQ(store_->EventsAfter(0, "", 100, 1 << 20)->size(), 6u);
  EXPECT_EQ(store_->EventsAfter(events[1].cursor, "jobs/aaaa", 100, 1 << 20)->size(), 2u);
  EXPECT_EQ(*store_->LastEvent(), 6u);
}

TEST_F(JobStoreTest, RecentCheckpointsAreThoseOfTheNewestJobs) {
  Insert("jobs/aaaa");
  Insert("jobs/bbbb");
  v1::Checkpoint checkpoint;
  for (const int step : {5, 6}) {
    checkpoint.set_step(step);
    checkpoint.set_write_seconds(step);
    ASSERT_TRUE(store_->AddCheckpoint("jobs/bbbb", 1, 0, checkpoint).ok());
    checkpoint.set_step(step + 100);
    ASSERT_TRUE(store_->AddCheckpoint("jobs/aaaa", 1, 0, checkpoint).ok());
  }
  std::vector<int64_t> steps;
  const auto recent = *store_->RecentCheckpoints(3);
  for (const v1::Checkpoint& one : recent) steps.push_back(one.step());
  EXPECT_EQ(steps, (std::vector<int64_t>{6, 5, 106}));
}

TEST_F(JobStoreTest, OldEventsAreForgottenJobByJob) {
  v1::Job first = Insert("jobs/aaaa");
  Insert("jobs/bbbb");
  ASSERT_TRUE(Move(first, v1::JOB_STATE_STARTING).ok());
  v1::Checkpoint checkpoint;
  for (int step = 1; step <= 5; ++step) {
    checkpoint.set_step(step);
    ASSERT_TRUE(store_->AddCheckpoint("jobs/aaaa", 1, 1, checkpoint).ok());
  }
  ASSERT_TRUE(store_->PruneEvents(3).ok());
  const auto left = *store_->EventsAfter(0, "jobs/aaaa", 100, 1 << 20);
  ASSERT_EQ(left.size(), 3u);
  EXPECT_EQ(left[0].message.checkpoint_saved().checkpoint().step(), 3);
  EXPECT_EQ(store_->EventsAfter(0, "jobs/bbbb", 100, 1 << 20)->size(), 1u);
  ASSERT_TRUE(Move(first, v1::JOB_STATE_RUNNING).ok());
  EXPECT_EQ(store_->EventsAfter(left[2].cursor, "jobs/aaaa", 100, 1 << 20)
                ->front()
                .message.state_changed()
                .sequence(),
            8u)
      << "the count goes on";
}

TEST_F(JobStoreTest, CursorsGoOnAfterTheNewestJobIsDeleted) {
  v1::Job job = Insert("jobs/aaaa");
  ASSERT_TRUE(Move(job, v1::JOB_STATE_CANCELLED).ok());
  ASSERT_TRUE(store_->DeleteJob("jobs/aaaa", nullptr).ok());
  EXPECT_EQ(*store_->LastEvent(), 2u);
  Insert("jobs/bbbb");
  EXPECT_EQ(store_->EventsAfter(2, "", 10, 1000)->front().cursor, 3u);
}

TEST_F(JobStoreTest, OnlyEndedJobsAreDeleted) {
  Insert("jobs/aaaa");
  EXPECT_EQ(ReasonOf(store_->DeleteJob("jobs/aaaa", nullptr)), reason::kJobStateConflict);
  EXPECT_EQ(ReasonOf(store_->DeleteJob("jobs/zzzz", nullptr)), reason::kJobNotFound);
}

TEST_F(JobStoreTest, ARequestIdGivesItsReplyAgainAndNoOther) {
  v1::Job job;
  job.set_name("jobs/abcd");
  job.set_state(v1::JOB_STATE_QUEUED);
  const RequestRecord record{.method = "Create", .id = "id1", .hash = "h1", .reply = "reply"};
  ASSERT_TRUE(store_->InsertJobs({job}, &record).ok());
  Reopen();
  EXPECT_EQ(**store_->FindReply("Create", "id1", "h1"), "reply");
  EXPECT_FALSE(store_->FindReply("Create", "id2", "h1")->has_value());
  EXPECT_FALSE(store_->FindReply("Cancel", "id1", "h1")->has_value());
  EXPECT_EQ(ReasonOf(store_->FindReply("Create", "id1", "h2").status()), reason::kRequestIdReused);
  ASSERT_TRUE(store_->PruneRequests(time(nullptr) + 1, 100).ok());
  EXPECT_FALSE(store_->FindReply("Create", "id1", "h1")->has_value());
}

TEST_F(JobStoreTest, OfManyRepliesTheNewestStay) {
  RequestRecord record{.method = "Create", .id = "old", .hash = "h", .reply = "reply"};
  ASSERT_TRUE(store_->InsertRequest(record).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // times are whole seconds
  record.id = "new";
  ASSERT_TRUE(store_->InsertRequest(record).ok());
  ASSERT_TRUE(store_->PruneRequests(0, 100).ok());
  EXPECT_TRUE(store_->FindReply("Create", "old", "h")->has_value());
  ASSERT_TRUE(store_->PruneRequests(0, 0).ok());
  EXPECT_FALSE(store_->FindReply("Create", "old", "h")->has_value());
  EXPECT_TRUE(store_->FindReply("Create", "new", "h")->has_value());
}

TEST_F(JobStoreTest, AFailedEffectLeavesNoReply) {
  v1::Job job = Insert("jobs/abcd");
  const RequestRecord record{.method = "Create", .id = "id1", .hash = "h1", .reply = "reply"};
  EXPECT_EQ(ReasonOf(store_->InsertJobs({job}, &record)), reason::kJobExists);
  EXPECT_FALSE(store_->FindReply("Create", "id1", "h1")->has_value());
}

TEST_F(JobStoreTest, CheckpointsAreListedByStepAndReplacedByLaterAttempts) {
  v1::Job job = Insert("jobs/abcd");
  ASSERT_TRUE(Move(job, v1::JOB_STATE_STARTING).ok());
  for (const int64_t step : {20, 10, 20}) {
    v1::Checkpoint checkpoint;
    checkpoint.set_step(step);
    ASSERT_TRUE(store_->AddCheckpoint("jobs/abcd", 1, 0, checkpoint).ok());
  }
  EXPECT_EQ(store_->ListCheckpoints("jobs/abcd", -1, 10)->size(), 2u);
  EXPECT_EQ(store_->ListCheckpoints("jobs/abcd", 10, 10)->front().step(), 20);
  ASSERT_TRUE(store_->RemoveCheckpoint("jobs/abcd", 1, 7, 10).ok());
  EXPECT_EQ(ReasonOf(store_->GetCheckpoint("jobs/abcd", 10).status()), reason::kCheckpointNotFound);
  EXPECT_EQ(store_->GetAttempt("jobs/abcd", 1)->acknowledged, 7u);
}

TEST_F(JobStoreTest, ANewerSchemaIsRefusedAndLeftAlone) {
  store_.reset();
  {
    auto database = *Database::Open(path());
    ASSERT_TRUE(database->Execute("PRAGMA user_version = 999").ok());
  }
  const auto opened = JobStore::Open(path());
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(ReasonOf(opened.status()), reason::kStoreCorrupt);
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("999"));
}

// Whoever looks into the file sees that it is in use, and holds up no write of ours.
TEST_F(JobStoreTest, NobodyElseOpensTheDatabase) {
  Insert("jobs/abcd");
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path().c_str(), &other), SQLITE_OK);
  for (const std::string statement : {"SELECT count(*) FROM job", "BEGIN IMMEDIATE", "VACUUM"}) {
    EXPECT_EQ(sqlite3_exec(other, statement.c_str(), nullptr, nullptr, nullptr), SQLITE_BUSY)
        << statement << ": " << sqlite3_errmsg(other);
    Insert("jobs/after-" + statement);
  }
  EXPECT_FALSE(JobStore::Open(path()).ok());
  EXPECT_EQ(sqlite3_close(other), SQLITE_OK);
  Reopen();
  EXPECT_EQ(store_->UnfinishedJobs()->size(), 4u);
}

TEST_F(JobStoreTest, ADamagedFileIsRefusedWithAWayOut) {
  Insert("jobs/abcd");
  store_.reset();
  std::ofstream(path(), std::ios::binary | std::ios::in).seekp(0) << std::string(4096, '!');
  const auto opened = JobStore::Open(path());
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("backup"));
}

TEST(StateDirectoryTest, DiscardsFilesOfJobsThatAreGone) {
  TestDirectory directory;
  const auto state = *StateDirectory::Prepare(directory.state());
  ASSERT_TRUE(state.MakeAttempt("jobs/keep", 1).ok());
  ASSERT_TRUE(state.MakeAttempt("jobs/gone", 1).ok());
  ASSERT_TRUE(state.DiscardUnknown({"jobs/keep"}).ok());
  EXPECT_EQ(access(state.Job("jobs/keep").c_str(), F_OK), 0);
  EXPECT_NE(access(state.Job("jobs/gone").c_str(), F_OK), 0);
}

TEST(StateDirectoryTest, ALinkInADeletedJobIsNotFollowed) {
  TestDirectory directory;
  const auto state = *StateDirectory::Prepare(directory.state());
  const std::string outside = directory.path() + "/outside";
  ASSERT_EQ(mkdir(outside.c_str(), 0700), 0);
  std::ofstream(outside + "/file") << "x";
  ASSERT_TRUE(state.MakeAttempt("jobs/gone", 1).ok());
  ASSERT_EQ(symlink(outside.c_str(), (state.Job("jobs/gone") + "/checkpoints/9").c_str()), 0);
  ASSERT_TRUE(state.Discard("jobs/gone").ok());
  state.EmptyTrash();
  EXPECT_NE(access((state.path() + "/trash/job").c_str(), F_OK), 0);
  EXPECT_EQ(access((outside + "/file").c_str(), F_OK), 0);
}

TEST(StateDirectoryTest, ADirectoryOthersMayEnterIsRefused) {
  TestDirectory directory;
  ASSERT_EQ(mkdir(directory.state().c_str(), 0700), 0);
  ASSERT_EQ(chmod(directory.state().c_str(), 0755), 0);
  const auto state = StateDirectory::Prepare(directory.state());
  ASSERT_FALSE(state.ok());
  EXPECT_THAT(std::string(state.status().message()), HasSubstr("0700"));
}

}  // namespace
}  // namespace penstock::server
