// Data of jobs, inspected and built by a daemon.
#include <chrono>

#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/test_support.h"

namespace penstock::server {
namespace {

using std::chrono::milliseconds;
using testing::AnyOf;
using testing::HasSubstr;

TEST_F(DaemonTest, DataAreInspectedInTheJobsTokenCacheUntilNobodyWaits) {
  Start();
  v1::InspectDataRequest request;
  request.set_examples(7);
  grpc::ClientContext context;
  v1::InspectDataResponse response;
  ASSERT_TRUE(client_->jobs->InspectData(&context, request, &response).ok());
  EXPECT_EQ(response.documents(), 7);
  EXPECT_THAT(response.setup(0), HasSubstr("/token_cache"));

  request.set_examples(21);
  grpc::ClientContext refused;
  const grpc::Status status = client_->jobs->InspectData(&refused, request, &response);
  EXPECT_EQ(ErrorInfoOf(status).reason(), reason::kRequestInvalid);
  EXPECT_EQ(ErrorInfoOf(status).metadata().at("field"), "examples");

  // One that is given up does not keep the next from its turn.
  request.set_examples(1);
  (*request.mutable_spec()->mutable_labels())["endless"] = "1";
  grpc::ClientContext abandoned;
  abandoned.set_deadline(std::chrono::system_clock::now() + milliseconds(100));
  // Whichever of the two ends sees it first.
  EXPECT_THAT(client_->jobs->InspectData(&abandoned, request, &response).error_code(),
              AnyOf(grpc::StatusCode::DEADLINE_EXCEEDED, grpc::StatusCode::CANCELLED));
  request.clear_spec();
  grpc::ClientContext next;
  EXPECT_TRUE(client_->jobs->InspectData(&next, request, &response).ok());
}

TEST_F(DaemonTest, BuildingDataSaysHowFarItIs) {
  Start();
  v1::BuildDataRequest request;
  grpc::ClientContext context;
  const auto reader = client_->jobs->BuildData(&context, request);
  v1::BuildDataResponse message;
  double fraction = 0;
  int messages = 0;
  while (reader->Read(&message) && message.has_fraction()) {
    EXPECT_GT(message.fraction(), fraction);
    fraction = message.fraction();
    ++messages;
  }
  EXPECT_GT(messages, 0);
  EXPECT_LE(fraction, 1);
  ASSERT_TRUE(message.has_result());
  EXPECT_THAT(message.result().setup(0), HasSubstr("/token_cache"));
  EXPECT_FALSE(reader->Read(&message));
  EXPECT_TRUE(reader->Finish().ok());

  (*request.mutable_spec()->mutable_labels())["broken"] = "1";
  grpc::ClientContext refused;
  const auto broken = client_->jobs->BuildData(&refused, request);
  while (broken->Read(&message)) EXPECT_FALSE(message.has_result());
  EXPECT_EQ(ErrorInfoOf(broken->Finish()).reason(), reason::kDataInvalid);
}

// It makes room for the next, whether its client reads or not.
TEST_F(DaemonTest, ABuildThatIsGivenUpEnds) {
  Start();
  v1::BuildDataRequest request;
  (*request.mutable_spec()->mutable_labels())["endless"] = "1";
  grpc::ClientContext abandoned;
  const auto reader = client_->jobs->BuildData(&abandoned, request);
  v1::BuildDataResponse message;
  ASSERT_TRUE(reader->Read(&message));
  abandoned.TryCancel();
  grpc::ClientContext next;
  v1::InspectDataResponse response;
  EXPECT_TRUE(client_->jobs->InspectData(&next, {}, &response).ok());
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace penstock::server
