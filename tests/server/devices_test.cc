// Which GPUs a daemon has, under every setting of CUDA_VISIBLE_DEVICES (BC-56), and what becomes of
// one that fails (BC-60).
#include <future>
#include <thread>

#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/devices/device_registry.h"
#include "server/devices/nvml_driver.h"
#include "server/devices/visible_devices.h"
#include "tests/server/fake_gpus.h"

namespace penstock::server {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

GpuInventory TwoCards() {
  return {.driver_version = "580.1",
          .cuda_version = 13000,
          .cards = {MakeCard("GPU-aaaa-1"), MakeCard("GPU-abbb-2")}};
}

// The second card is cut into two slices.
GpuInventory WithMig() {
  GpuInventory inventory = TwoCards();
  inventory.cards[1].mig_enabled = true;
  inventory.cards[1].slices = {{.uuid = "MIG-cccc", .memory_bytes = int64_t{10} << 30},
                               {.uuid = "MIG-dddd", .memory_bytes = int64_t{20} << 30}};
  return inventory;
}

absl::StatusOr<std::vector<std::string>> Visible(const GpuInventory& inventory,
                                                 std::optional<std::string> variable,
                                                 std::optional<std::string> order = std::nullopt) {
  const auto gpus = VisibleGpus(
      inventory, {.cuda_visible_devices = std::move(variable), .cuda_device_order = order});
  if (!gpus.ok()) return gpus.status();
  std::vector<std::string> uuids;
  for (const VisibleGpu& gpu : *gpus) uuids.push_back(gpu.uuid);
  return uuids;
}

TEST(VisibleGpusTest, Bc56EveryWayToNameACardGivesItsUuid) {
  struct Case {
    std::optional<std::string> variable;
    std::vector<std::string> expected;
  };
  const Case cases[] = {{std::nullopt, {"GPU-aaaa-1", "GPU-abbb-2"}},
                        {"1", {"GPU-abbb-2"}},
                        {"1,0", {"GPU-abbb-2", "GPU-aaaa-1"}},
                        {" 1 , 0 ", {"GPU-abbb-2", "GPU-aaaa-1"}},
                        {"GPU-abbb-2", {"GPU-abbb-2"}},
                        {"GPU-ab", {"GPU-abbb-2"}},
                        {"GPU-ab,0", {"GPU-abbb-2", "GPU-aaaa-1"}},
                        {"", {}},
                        {"-1", {}},
                        {"NoDevFiles", {}}};
  for (const Case& one : cases) {
    const auto visible = Visible(TwoCards(), one.variable);
    ASSERT_TRUE(visible.ok()) << visible.status();
    EXPECT_EQ(*visible, one.expected) << one.variable.value_or("unset");
  }
}

TEST(VisibleGpusTest, Bc56WhatNamesNothingIsRefusedAndNeverTheFirstCard) {
  const std::pair<const char*, const char*> cases[] = {
      {"0,9,1", "9 names no GPU, there are 2"},
      {"2", "2 names no GPU"},
      {"0,-1", "-1 names no GPU"},
      {"0,", "\"\" is neither"},
      {"cuda:0", "neither a number nor a UUID"},
      {"GPU-", "neither a number nor a UUID"},
      {"GPU-a", "2 GPUs begin with"},
      {"GPU-ffff", "no GPU here has the UUID GPU-ffff"},
      {"MIG-cccc", "no GPU here has the UUID MIG-cccc"},
      {"99999999999999999999", "neither a number"},
      {"0,0", "twice"},
      {"1,GPU-abbb-2", "twice"}};
  for (const auto& [variable, says] : cases) {
    const auto visible = Visible(TwoCards(), variable);
    ASSERT_FALSE(visible.ok()) << variable;
    EXPECT_EQ(ReasonOf(visible.status()), reason::kDeviceUnavailable);
    EXPECT_THAT(std::string(visible.status().message()),
                AllOf(HasSubstr(says), HasSubstr(variable), HasSubstr("by UUID")));
  }
}

TEST(VisibleGpusTest, Bc56ASliceIsADeviceAndTheCardItIsOfIsNot) {
  EXPECT_THAT(*Visible(WithMig(), std::nullopt), ElementsAre("GPU-aaaa-1", "MIG-cccc", "MIG-dddd"));
  EXPECT_THAT(*Visible(WithMig(), "MIG-d"), ElementsAre("MIG-dddd"));
  EXPECT_THAT(*Visible(WithMig(), "1"), ElementsAre("MIG-cccc", "MIG-dddd"));
  EXPECT_THAT(std::string(Visible(WithMig(), "GPU-abbb-2").status().message()),
              HasSubstr("only its slices"));
  const auto slices = VisibleGpus(WithMig(), {.cuda_visible_devices = "MIG-cccc"});
  ASSERT_TRUE(slices.ok());
  EXPECT_EQ(slices->at(0).memory_bytes, int64_t{10} << 30) << "the slice's memory is the budget";
}

TEST(VisibleGpusTest, Bc56NumbersOfUnlikeCardsNeedTheOrderOfTheBus) {
  GpuInventory unlike = TwoCards();
  unlike.cards[1].name = "Faster Card";
  EXPECT_THAT(std::string(Visible(unlike, "0").status().message()), HasSubstr("CUDA_DEVICE_ORDER"));
  EXPECT_THAT(*Visible(unlike, "0", "PCI_BUS_ID"), ElementsAre("GPU-aaaa-1"));
  EXPECT_THAT(*Visible(unlike, "GPU-ab"), ElementsAre("GPU-abbb-2"));
}

std::unique_ptr<DeviceRegistry> MakeRegistry(std::shared_ptr<FakeGpus> gpus) {
  return DeviceRegistry::Create(FakeRegistryOptions(std::move(gpus)));
}

bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 3000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

TEST(DeviceRegistryTest, ListsTheCpuThenTheGpusWithReadings) {
  const auto registry = MakeRegistry(std::make_shared<FakeGpus>(TwoCards()));
  const auto devices = registry->List();
  ASSERT_EQ(devices.size(), 3u);
  EXPECT_EQ(devices[0].id(), "cpu");
  EXPECT_EQ(devices[1].id(), "GPU-aaaa-1");
  EXPECT_EQ(devices[1].memory_bytes(), int64_t{80} << 30);
  EXPECT_EQ(devices[2].health(), v1::DEVICE_HEALTH_HEALTHY);
  EXPECT_THAT(registry->missing_gpus(), IsEmpty());
  ASSERT_TRUE(Eventually([&] { return registry->Reading("GPU-abbb-2").has_value(); }));
  const v1::DeviceReading reading = *registry->Reading("GPU-abbb-2");
  EXPECT_EQ(reading.utilization(), 0.5);
  EXPECT_FALSE(reading.has_temperature_celsius()) << "what the driver does not tell is not 0";
  EXPECT_FALSE(registry->Reading("cpu").has_value());
  EXPECT_FALSE(registry->Reading("GPU-none").has_value());
}

TEST(DeviceRegistryTest, CardsThatCannotRunOurJobsAreListedWithTheReason) {
  GpuInventory old_card = TwoCards();
  old_card.cards[0].compute_major = 7;
  old_card.cards[0].compute_minor = 5;
  auto registry = MakeRegistry(std::make_shared<FakeGpus>(old_card));
  EXPECT_EQ(registry->List()[1].health(), v1::DEVICE_HEALTH_UNUSABLE);
  EXPECT_THAT(registry->List()[1].health_message(), AllOf(HasSubstr("7.5"), HasSubstr("bf16")));
  EXPECT_EQ(registry->List()[2].health(), v1::DEVICE_HEALTH_HEALTHY);
  EXPECT_FALSE(registry->Quarantine("GPU-aaaa-1", "x").has_value());

  GpuInventory old_driver = TwoCards();
  old_driver.driver_version = "535.54";
  old_driver.cuda_version = 12020;
  registry = MakeRegistry(std::make_shared<FakeGpus>(old_driver));
  for (int i : {1, 2}) {
    EXPECT_EQ(registry->List()[i].health(), v1::DEVICE_HEALTH_UNUSABLE);
    EXPECT_THAT(registry->List()[i].health_message(),
                AllOf(HasSubstr("535.54"), HasSubstr("12.2"), HasSubstr("13.0"),
                      HasSubstr("update the driver")));
  }
  EXPECT_EQ(registry->List()[0].health(), v1::DEVICE_HEALTH_HEALTHY);
}

TEST(DeviceRegistryTest, WithoutGpusItSaysWhy) {
  DeviceRegistryOptions options = FakeRegistryOptions(nullptr);
  options.open_driver = [] { return OpenNvml(); };
  options.variables.cuda_visible_devices = "";
  auto registry = DeviceRegistry::Create(options);  // with a driver or without: none is visible
  EXPECT_EQ(registry->List().size(), 1u);
  EXPECT_THAT(registry->missing_gpus(), testing::Not(IsEmpty()));

  options.open_driver = nullptr;
  EXPECT_THAT(DeviceRegistry::Create(options)->missing_gpus(), HasSubstr("no CUDA"));

  options = FakeRegistryOptions(std::make_shared<FakeGpus>(TwoCards()));
  options.variables.cuda_visible_devices = "7";
  registry = DeviceRegistry::Create(options);
  EXPECT_EQ(registry->List().size(), 1u);
  EXPECT_THAT(registry->missing_gpus(), HasSubstr("7 names no GPU"));
  options.variables.cuda_visible_devices = "-1";
  EXPECT_THAT(DeviceRegistry::Create(options)->missing_gpus(), HasSubstr("leaves none of 2"));
}

TEST(DeviceRegistryTest, QuarantineHoldsUntilReleased) {
  const auto registry = MakeRegistry(std::make_shared<FakeGpus>(TwoCards()));
  const auto device = registry->Quarantine("GPU-aaaa-1", "it failed");
  ASSERT_TRUE(device.has_value());
  EXPECT_EQ(device->health(), v1::DEVICE_HEALTH_QUARANTINED);
  EXPECT_THAT(device->health_message(), AllOf(HasSubstr("it failed"), HasSubstr("release-device")));
  EXPECT_FALSE(registry->Quarantine("GPU-aaaa-1", "again").has_value()) << "already there";
  EXPECT_FALSE(registry->Quarantine("cpu", "x").has_value());
  EXPECT_FALSE(registry->Quarantine("GPU-none", "x").has_value());
  EXPECT_EQ(registry->Find("GPU-abbb-2")->health(), v1::DEVICE_HEALTH_HEALTHY);

  const auto released = registry->Release("GPU-aaaa-1");
  ASSERT_TRUE(released.ok());
  EXPECT_EQ(released->health(), v1::DEVICE_HEALTH_HEALTHY);
  EXPECT_THAT(released->health_message(), IsEmpty());
  EXPECT_TRUE(registry->Release("GPU-aaaa-1").ok()) << "harmless when repeated";
  const absl::Status unknown = registry->Release("GPU-none").status();
  EXPECT_EQ(ReasonOf(unknown), reason::kRequestInvalid);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("GPU-abbb-2"));
}

TEST(DeviceRegistryTest, Bc60ACardThatTheDriverLosesGoesIntoQuarantineByItself) {
  auto gpus = std::make_shared<FakeGpus>(TwoCards());
  const auto registry = MakeRegistry(gpus);
  std::promise<std::string> lost;
  registry->OnLost([&](const v1::Device& device) { lost.set_value(device.id()); });
  gpus->Lose("GPU-abbb-2");
  auto future = lost.get_future();
  ASSERT_EQ(future.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_EQ(future.get(), "GPU-abbb-2");
  EXPECT_THAT(registry->Find("GPU-abbb-2")->health_message(), HasSubstr("GPU is lost"));
  EXPECT_EQ(registry->Find("GPU-aaaa-1")->health(), v1::DEVICE_HEALTH_HEALTHY);
}

// A driver whose calls do not return until it is told to let go.
class HangingDriver final : public GpuDriver {
 public:
  explicit HangingDriver(std::shared_future<void> let_go) : let_go_(std::move(let_go)) {}
  absl::StatusOr<GpuInventory> List() override {
    let_go_.wait();
    return GpuInventory();
  }
  absl::StatusOr<v1::DeviceReading> Read(const std::string&) override {
    return v1::DeviceReading();
  }

 private:
  std::shared_future<void> let_go_;
};

TEST(DeviceRegistryTest, Bc60ADriverThatHangsHoldsUpNobody) {
  std::promise<void> let_go;
  const std::shared_future<void> gate = let_go.get_future().share();
  DeviceRegistryOptions options = FakeRegistryOptions(nullptr);
  options.list_limit = milliseconds(20);
  options.open_driver = [gate]() -> absl::StatusOr<std::unique_ptr<GpuDriver>> {
    return std::make_unique<HangingDriver>(gate);
  };
  auto registry = DeviceRegistry::Create(options);
  EXPECT_EQ(registry->List().size(), 1u);
  EXPECT_THAT(registry->missing_gpus(), HasSubstr("has not answered"));
  registry.reset();  // returns although the thread hangs
  let_go.set_value();
}

}  // namespace
}  // namespace penstock::server
