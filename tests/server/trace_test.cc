// The timeline of the step that a job is in.
#include <chrono>
#include <string>
#include <thread>

#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/test_support.h"

namespace penstock::server {
namespace {

using testing::HasSubstr;

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

// gRPC aborts the process of who finishes a call twice.
TEST_F(TraceTest, ACallThatIsRefusedAndGivenUpEndsOnce) {
  Start();
  v1::TraceJobRequest request;
  request.set_name("no name of a job");
  for (int i = 0; i < 1000; ++i) {
    grpc::ClientContext context;
    const auto reader = client_->jobs->TraceJob(&context, request);
    std::this_thread::sleep_for(std::chrono::microseconds(i));
    context.TryCancel();
    EXPECT_FALSE(reader->Finish().ok());
  }
  const std::string job = client_->Submit({{"steps", "1"}});
  EXPECT_EQ(client_->WaitForEnd(job).state(), v1::JOB_STATE_SUCCEEDED);
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
