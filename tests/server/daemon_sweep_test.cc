// Sweeps in a daemon with fake workers: all or none, once, found and cancelled together.
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/daemon_fixture.h"

namespace penstock::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class DaemonSweepTest : public DaemonTest {
 protected:
  static v1::CreateSweepRequest Request(const std::string& id, const Labels& labels,
                                        const std::vector<std::string>& seeds) {
    v1::CreateSweepRequest request;
    request.set_sweep_id(id);
    *request.mutable_spec()->mutable_job() = MakeRequest(labels).spec();
    v1::SweepAxis& axis = *request.mutable_spec()->add_axes();
    axis.set_field("seed");
    for (const std::string& seed : seeds) axis.add_values(seed);
    return request;
  }
  grpc::Status Create(const v1::CreateSweepRequest& request, v1::CreateSweepResponse* response) {
    grpc::ClientContext context;
    return client_->jobs->CreateSweep(&context, request, response);
  }
  grpc::Status Cancel(const std::string& name, v1::CancelSweepResponse* response,
                      const std::string& request_id = "") {
    grpc::ClientContext context;
    v1::CancelSweepRequest request;
    request.set_name(name);
    request.set_request_id(request_id);
    return client_->jobs->CancelSweep(&context, request, response);
  }
  std::vector<v1::Job> List(const std::string& sweep) {
    grpc::ClientContext context;
    v1::ListJobsRequest request;
    request.set_sweep(sweep);
    v1::ListJobsResponse response;
    const grpc::Status status = client_->jobs->ListJobs(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return {response.jobs().begin(), response.jobs().end()};
  }
};

TEST_F(DaemonSweepTest, MakesAJobForEachPointOnceAndRunsThem) {
  Start();
  v1::CreateSweepRequest request = Request("rates", {{"steps", "2"}}, {"1", "2"});
  v1::SweepAxis& axis = *request.mutable_spec()->add_axes();
  axis.set_field("optimizer.learning_rate");
  axis.add_values("1e-5");
  axis.add_values("3e-5");
  request.set_request_id("once");
  request.set_validate_only(true);
  v1::CreateSweepResponse tried, made, again;
  ASSERT_TRUE(Create(request, &tried).ok());
  EXPECT_EQ(tried.name(), "");
  ASSERT_EQ(tried.jobs_size(), 4);
  EXPECT_EQ(tried.jobs(3).name(), "");
  EXPECT_EQ(tried.jobs(3).host_peak_bytes(), 1 << 20);
  EXPECT_TRUE(List("").empty());

  request.set_validate_only(false);
  ASSERT_TRUE(Create(request, &made).ok());
  EXPECT_EQ(made.name(), "sweeps/rates");
  ASSERT_EQ(made.jobs_size(), 4);
  EXPECT_EQ(made.jobs(2).name(), "jobs/rates-003");
  EXPECT_EQ(made.jobs(2).values(0).value(), "2");
  Restart();
  ASSERT_TRUE(Create(request, &again).ok());
  EXPECT_EQ(again.SerializeAsString(), made.SerializeAsString());
  EXPECT_EQ(List("sweeps/rates").size(), 4u);
  for (const v1::SweepJob& one : made.jobs()) {
    const v1::Job job = client_->WaitForEnd(one.name());
    EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
    EXPECT_EQ(job.sweep_point().sweep(), made.name());
    EXPECT_EQ(job.sweep_point().values_size(), 2);
  }
  const v1::Job third = client_->Get("jobs/rates-003");
  EXPECT_EQ(third.sweep_point().number(), 3);
  EXPECT_EQ(third.train().seed(), 2u);
  EXPECT_EQ(third.train().optimizer().learning_rate(), 1e-5);
  // Another sweep of the name is refused until the last of its jobs is gone.
  request.set_request_id("twice");
  EXPECT_EQ(ErrorInfoOf(Create(request, &again)).reason(), reason::kJobExists);
  for (const v1::SweepJob& one : made.jobs()) {
    grpc::ClientContext context;
    v1::DeleteJobRequest remove;
    remove.set_name(one.name());
    v1::DeleteJobResponse removed;
    ASSERT_TRUE(client_->jobs->DeleteJob(&context, remove, &removed).ok());
  }
  EXPECT_TRUE(Create(request, &again).ok());
}

TEST_F(DaemonSweepTest, AllOfThemOrNone) {
  options_.max_queued_jobs = 4;
  Start();
  v1::CreateSweepResponse response;
  // The third is planned and refused.
  v1::CreateSweepRequest request = Request("names", {}, {"1"});
  v1::SweepAxis& axis = *request.mutable_spec()->add_axes();
  axis.set_field("display_name");
  for (const char* name : {"good", "fine", "bad"}) axis.add_values(name);
  grpc::Status status = Create(request, &response);
  EXPECT_EQ(ErrorInfoOf(status).reason(), reason::kSpecInvalid);
  EXPECT_THAT(status.error_message(), HasSubstr("job 3 (seed=1, display_name=bad): batch."));
  // More memory than there ever is, in one of them.
  request = Request("large", {}, {"1"});
  v1::SweepAxis& bytes = *request.mutable_spec()->add_axes();
  bytes.set_field("labels.host_bytes");
  bytes.add_values("1000");
  bytes.add_values(absl::StrCat(2 * kHostBytes));
  status = Create(request, &response);
  EXPECT_EQ(ErrorInfoOf(status).reason(), reason::kHostMemoryInsufficient)
      << status.error_message();
  // A value that is none of its field.
  status = Create(Request("wrong", {}, {"1", "x"}), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(),
              testing::AllOf(HasSubstr("axes[0].values[1]"), HasSubstr("seed"), HasSubstr("x")));
  // More jobs than may wait.
  status = Create(Request("many", {}, {"1", "2", "3", "4", "5"}), &response);
  EXPECT_EQ(ErrorInfoOf(status).reason(), reason::kQueueFull);
  // Two that would write to one place.
  request = Request("places", {}, {"1", "2"});
  v1::SweepAxis& place = *request.mutable_spec()->add_axes();
  place.set_field("output.directory");
  place.add_values("/models/one");
  status = Create(request, &response);
  EXPECT_EQ(ErrorInfoOf(status).reason(), "OUTPUT_EXISTS") << status.error_message();
  // A job that is there already.
  v1::CreateJobRequest taken = MakeRequest({{"steps", "1"}});
  taken.set_job_id("taken-002");
  v1::Job job;
  ASSERT_TRUE(client_->Create(taken, &job).ok());
  status = Create(Request("taken", {}, {"1", "2"}), &response);
  EXPECT_EQ(ErrorInfoOf(status).reason(), reason::kJobExists);
  for (const char* id :
       {"abc", "Ab-cd", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
    EXPECT_EQ(ErrorInfoOf(Create(Request(id, {}, {"1"}), &response)).reason(),
              reason::kRequestInvalid);
  }
  EXPECT_EQ(client_->WaitForEnd(job.name()).state(), v1::JOB_STATE_SUCCEEDED)
      << "nothing of it was touched";
  EXPECT_EQ(List("").size(), 1u);
  EXPECT_TRUE(Create(Request("", {{"steps", "1"}}, {"1", "2"}), &response).ok());
  EXPECT_THAT(response.name(), testing::StartsWith("sweeps/s"));
}

TEST_F(DaemonSweepTest, CancelsThoseThatHaveNotEnded) {
  Start();
  v1::CreateSweepResponse response;
  v1::CreateSweepRequest request = Request("trio", {{"step_ms", "2"}}, {"1"});
  v1::SweepAxis& axis = *request.mutable_spec()->add_axes();
  axis.set_field("labels.steps");
  for (const char* steps : {"1", "1000000", "1000001"}) axis.add_values(steps);
  ASSERT_TRUE(Create(request, &response).ok());
  const std::string other = client_->Submit({{"steps", "1"}});
  client_->WaitForEnd("jobs/trio-001");
  client_->WaitForState("jobs/trio-002", v1::JOB_STATE_RUNNING);
  v1::CancelSweepResponse cancelled;
  ASSERT_TRUE(Cancel("sweeps/trio", &cancelled, "once").ok());
  EXPECT_THAT(cancelled.jobs(), ElementsAre("jobs/trio-002", "jobs/trio-003"));
  EXPECT_EQ(client_->WaitForEnd("jobs/trio-002").state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(client_->Get("jobs/trio-003").state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(client_->Get("jobs/trio-001").state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(client_->WaitForEnd(other).state(), v1::JOB_STATE_SUCCEEDED);
  ASSERT_TRUE(Cancel("sweeps/trio", &cancelled, "once").ok());
  EXPECT_EQ(cancelled.jobs_size(), 2) << "the first reply again";
  ASSERT_TRUE(Cancel("sweeps/trio", &cancelled).ok());
  EXPECT_EQ(cancelled.jobs_size(), 0) << "all have ended";
  EXPECT_EQ(ErrorInfoOf(Cancel("sweeps/none", &cancelled)).reason(), reason::kJobNotFound);
  EXPECT_EQ(ErrorInfoOf(Cancel("jobs/trio-001", &cancelled)).reason(), reason::kRequestInvalid);
}

}  // namespace
}  // namespace penstock::server
