#include "engine/train/calibrate.h"

#include <filesystem>

#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/engine/train/train_testing.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempDir;

CalibrationSizes TinySizes() {
  CalibrationSizes sizes = DefaultCalibrationSizes(ComputeBackend::kCpu);
  ModelSpec& spec = sizes.runs[0].spec;
  spec.hidden_size = 64;
  spec.intermediate_size = 128;
  spec.num_heads = 2;
  spec.num_kv_heads = 1;
  spec.head_dim = 32;
  spec.vocab_size = 8192;  // or AdamW would be too short to be measured
  sizes.runs[0].document_tokens = {1024, 4096};
  sizes.runs.push_back(sizes.runs[0]);
  sizes.runs[1].update_time = UpdateTime::kNextStep;
  sizes.runs[1].document_tokens = {1024};
  sizes.storage_bytes = 8 << 20;
  return sizes;
}

TEST(CalibrateTest, MeasuresTheCpuAndItsProfileSurvivesAsText) {
  TempDir dir;
  CalibrateConfig config;
  config.storage_directory = dir.Path("");
  config.identity = MachineIdentity("card, driver 1");
  config.threads = 2;
  const auto measured = CalibrateWith(config, TinySizes());
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->profile.name, "cpu");
  EXPECT_EQ(measured->profile.source, ProfileSource::kCalibrated);
  EXPECT_GT(measured->measuring_seconds, 0);
  EXPECT_THAT(measured->identity, AllOf(HasSubstr("card, driver 1; "), HasSubstr(" cores of ")));
  // What was measured is no longer the rule of thumb.
  const MachineProfile known = CpuProfile(2).rates, &rates = measured->profile.rates;
  EXPECT_NE(rates.matmul_flops, known.matmul_flops);
  EXPECT_NE(rates.adamw_parameters, known.adamw_parameters);
  EXPECT_NE(rates.storage_write_bytes, known.storage_write_bytes);
  EXPECT_TRUE(std::filesystem::is_empty(dir.Path("")));

  const std::string text = ProfileJson(*measured);
  const auto again = ParseProfileJson(text, "file");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(ProfileJson(*again), text);
  EXPECT_EQ(again->profile.rates.matmul_flops, rates.matmul_flops);
  EXPECT_EQ(again->identity, measured->identity);
}

TEST(CalibrateTest, ADirectoryThatCannotBeWrittenIsNamed) {
  CalibrateConfig config;
  config.storage_directory = "/nowhere/at/all";
  config.threads = 1;
  const absl::Status status = CalibrateWith(config, TinySizes()).status();
  EXPECT_EQ(ReasonOf(status), reason::kIoError);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/at/all"));
}

TEST(ProfileJsonTest, WhatIsNoProfileIsRefusedWithItsKey) {
  MeasuredProfile measured;
  measured.profile = MachineProfiles()[0];
  const nlohmann::json good = nlohmann::json::parse(ProfileJson(measured));
  const auto refused = [](const std::string& text) {
    const absl::Status status = ParseProfileJson(text, "p.json").status();
    EXPECT_EQ(ReasonOf(status), reason::kProfileInvalid) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("p.json"));
    return std::string(status.message());
  };
  ASSERT_TRUE(ParseProfileJson(good.dump(), "p.json").ok());
  refused("");
  refused("[]");
  refused(std::string(100'000, '['));
  nlohmann::json bad = good;
  bad["rates"]["matmul_flops"] = 0;
  EXPECT_THAT(refused(bad.dump()), AllOf(HasSubstr("matmul_flops"), HasSubstr("found 0")));
  bad = good;
  bad["rates"].erase("copy_in_bytes");
  EXPECT_THAT(refused(bad.dump()), HasSubstr("copy_in_bytes"));
  bad = good;
  bad["rates"]["op_seconds"] = "fast";
  EXPECT_THAT(refused(bad.dump()), HasSubstr("op_seconds"));
  bad = good;
  bad["device_memory_bytes"] = -1;
  EXPECT_THAT(refused(bad.dump()), HasSubstr("device_memory_bytes"));
  bad = good;
  bad["watts"]["host"] = 1e300;
  EXPECT_THAT(refused(bad.dump()), HasSubstr("host"));
  bad = good;
  bad["identity"] = 7;
  EXPECT_THAT(refused(bad.dump()), HasSubstr("identity"));
}

}  // namespace
}  // namespace penstock
