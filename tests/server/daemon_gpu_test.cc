// A daemon with GPUs: leases, readings, quarantine.
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/job_state.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/fake_gpus.h"
#include "tests/server/test_support.h"

namespace penstock::server {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// Two cards and a CPU. Jobs with the label gpu want a card.
class GpuDaemonTest : public DaemonTest {
 protected:
  GpuDaemonTest() {
    gpus_ = std::make_shared<FakeGpus>(
        GpuInventory{.driver_version = "580.1",
                     .cuda_version = 13000,
                     .cards = {MakeCard("GPU-one"), MakeCard("GPU-two")}});
    options_.devices = DeviceRegistry::Create(FakeRegistryOptions(gpus_));
  }

  std::map<std::string, v1::Device> Devices() {
    grpc::ClientContext context;
    v1::ListDevicesResponse response;
    EXPECT_TRUE(client_->admin->ListDevices(&context, {}, &response).ok());
    std::map<std::string, v1::Device> devices;
    for (const v1::Device& device : response.devices()) devices[device.id()] = device;
    return devices;
  }
  grpc::Status Release(const std::string& id, v1::Device* device) {
    grpc::ClientContext context;
    v1::ReleaseDeviceRequest request;
    request.set_id(id);
    v1::ReleaseDeviceResponse response;
    const grpc::Status status = client_->admin->ReleaseDevice(&context, request, &response);
    *device = response.device();
    return status;
  }
  // What the worker of the job found in CUDA_VISIBLE_DEVICES.
  std::string VisibleTo(const std::string& job) {
    std::string text;
    std::getline(std::ifstream(directory_.state() + "/" + job + "/visible_devices"), text);
    return text;
  }

  std::shared_ptr<FakeGpus> gpus_;
};

TEST_F(GpuDaemonTest, Bc56EachJobHasACardOfItsOwnAndSeesNoOther) {
  Start();
  const Labels gpu = {{"gpu", "1"}, {"steps", "100000"}, {"step_ms", "5"}};
  const Labels cpu = {{"steps", "100000"}, {"step_ms", "5"}};
  const std::string first = client_->Submit(gpu), second = client_->Submit(gpu);
  const std::string third = client_->Submit(gpu), on_cpu = client_->Submit(cpu);
  for (const std::string& name : {first, second, on_cpu}) {
    client_->WaitForState(name, v1::JOB_STATE_RUNNING);
  }
  EXPECT_EQ(client_->Get(first).device(), "GPU-one");
  EXPECT_EQ(VisibleTo(first), "GPU-one");
  EXPECT_EQ(VisibleTo(second), "GPU-two");
  EXPECT_EQ(VisibleTo(on_cpu), "") << "no card by accident";
  auto devices = Devices();
  EXPECT_EQ(devices["GPU-two"].job(), second);
  EXPECT_EQ(devices["GPU-two"].health(), v1::DEVICE_HEALTH_HEALTHY);
  EXPECT_EQ(devices["cpu"].job(), on_cpu);
  const v1::Job waiting = client_->Get(third);
  EXPECT_EQ(waiting.state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(waiting.state_reason(), v1::STATE_REASON_DEVICE_BUSY);
  EXPECT_THAT(waiting.state_message(),
              testing::AllOf(HasSubstr("GPU-one"), HasSubstr(first), HasSubstr(second)));
}

TEST_F(GpuDaemonTest, MetricsCarryWhatTheCardDoesAndThoseOfTheCpuDoNot) {
  Start();
  const std::string on_gpu = client_->Submit({{"gpu", "1"}, {"steps", "3"}, {"step_ms", "50"}});
  const std::string on_cpu = client_->Submit({{"steps", "3"}});
  client_->WaitForEnd(on_gpu);
  client_->WaitForEnd(on_cpu);
  const auto points = [&](const std::string& name) {
    grpc::ClientContext context;
    v1::ListJobMetricsRequest request;
    request.set_name(name);
    v1::ListJobMetricsResponse response;
    EXPECT_TRUE(client_->jobs->ListJobMetrics(&context, request, &response).ok());
    EXPECT_EQ(response.points_size(), 3);
    return response;
  };
  const v1::DeviceReading reading = points(on_gpu).points(2).device_reading();
  EXPECT_EQ(reading.utilization(), 0.5);
  EXPECT_EQ(reading.power_watts(), 300);
  EXPECT_FALSE(reading.has_temperature_celsius());
  EXPECT_FALSE(points(on_cpu).points(2).has_device_reading());
  EXPECT_TRUE(Devices()["GPU-two"].has_reading());
}

TEST_F(GpuDaemonTest, Bc60AFailedCardIsLeftAndTheJobGoesOnElsewhere) {
  Start();
  const std::string name = client_->Submit({{"gpu", "1"}, {"gpu_fault", "1"}, {"faults", "1"}});
  const v1::Job job = client_->WaitForEnd(name);
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.attempt(), 2);
  EXPECT_EQ(job.device(), "GPU-two");
  EXPECT_THAT(job.failed_devices(), testing::ElementsAre("GPU-one"));
  auto devices = Devices();
  EXPECT_EQ(devices["GPU-one"].health(), v1::DEVICE_HEALTH_QUARANTINED);
  EXPECT_THAT(devices["GPU-one"].health_message(), HasSubstr("cudaErrorECCUncorrectable"));
  EXPECT_EQ(devices["GPU-two"].health(), v1::DEVICE_HEALTH_HEALTHY);
  int events = 0;
  for (const auto& message : ReadAll(*client_, Watch(name))) {
    if (!message.has_device_changed()) continue;
    ++events;
    EXPECT_EQ(message.device_changed().device().id(), "GPU-one");
    EXPECT_EQ(message.device_changed().device().health(), v1::DEVICE_HEALTH_QUARANTINED);
  }
  EXPECT_EQ(events, 1);

  // Nothing starts there until somebody says so.
  const Labels forever = {{"gpu", "1"}, {"steps", "100000"}, {"step_ms", "5"}};
  const std::string other = client_->Submit(forever), waits = client_->Submit(forever);
  EXPECT_EQ(client_->WaitForState(other, v1::JOB_STATE_RUNNING).device(), "GPU-two");
  EXPECT_EQ(client_->Get(waits).state(), v1::JOB_STATE_QUEUED);
  v1::Device released;
  ASSERT_TRUE(Release("GPU-one", &released).ok());
  EXPECT_EQ(released.health(), v1::DEVICE_HEALTH_HEALTHY);
  EXPECT_EQ(client_->WaitForState(waits, v1::JOB_STATE_RUNNING).device(), "GPU-one");
  EXPECT_EQ(ErrorInfoOf(Release("GPU-none", &released)).reason(), reason::kRequestInvalid);
}

TEST_F(GpuDaemonTest, Bc60AJobThatNoCardSurvivesFailsWithTheReason) {
  Start();
  const std::string name = client_->Submit({{"gpu", "1"}, {"gpu_fault", "1"}});
  const v1::Job job = client_->WaitForEnd(name);
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.failure_class(), v1::FAILURE_CLASS_RESOURCE);
  EXPECT_THAT(job.error().message(), HasSubstr("cudaErrorECCUncorrectable"));
  EXPECT_THAT(job.failed_devices(), testing::ElementsAre("GPU-one", "GPU-two"));
  const std::string next = client_->Submit({{"gpu", "1"}});
  const v1::Job waiting = client_->Get(next);
  EXPECT_EQ(waiting.state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(waiting.state_reason(), v1::STATE_REASON_DEVICE_UNAVAILABLE);
  EXPECT_THAT(waiting.state_message(), testing::AllOf(HasSubstr("GPU-one"), HasSubstr("GPU-two"),
                                                      HasSubstr("release-device")));
  // The CPU and the daemon are as well as before.
  EXPECT_EQ(client_->WaitForEnd(client_->Submit({})).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(GpuDaemonTest, AFaultOfTheProgramTakesOneCardAtMost) {
  Start();
  const std::string name = client_->Submit({{"gpu", "1"}, {"gpu_fault", "2"}});
  const v1::Job job = client_->WaitForEnd(name);
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.failure_class(), v1::FAILURE_CLASS_SERVER);
  EXPECT_THAT(job.state_message(), HasSubstr("GPU-one too"));
  auto devices = Devices();
  EXPECT_EQ(devices["GPU-one"].health(), v1::DEVICE_HEALTH_QUARANTINED);
  EXPECT_EQ(devices["GPU-two"].health(), v1::DEVICE_HEALTH_HEALTHY);
}

TEST_F(GpuDaemonTest, Bc60ACardLostUnderAJobIsToldToThoseWhoWatchIt) {
  Start();
  const std::string name = client_->Submit({{"gpu", "1"}, {"steps", "100000"}, {"step_ms", "5"}});
  client_->WaitForState(name, v1::JOB_STATE_RUNNING);
  grpc::ClientContext context;
  v1::WatchJobsRequest request = Watch(name);
  request.add_kinds(v1::WATCH_KIND_DEVICE);
  const auto reader = client_->jobs->WatchJobs(&context, request);
  gpus_->Lose("GPU-one");
  v1::WatchJobsResponse message;
  while (reader->Read(&message) && !message.has_device_changed()) {
  }
  EXPECT_EQ(message.device_changed().device().id(), "GPU-one");
  EXPECT_THAT(message.device_changed().device().health_message(), HasSubstr("GPU is lost"));
  EXPECT_EQ(client_->Get(name).state(), v1::JOB_STATE_RUNNING) << "its own error will end it";
  context.TryCancel();
  reader->Finish();
}

}  // namespace
}  // namespace penstock::server
