// What is looked at when a daemon starts, and what its watchdog is fed on.
#include "server/start_checks.h"

#include <dlfcn.h>
#include <sys/vfs.h>

#include <cstring>
#include <future>
#include <map>
#include <optional>

#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/jobs/queue_pulse.h"
#include "server/store/state_directory.h"
#include "tests/server/test_support.h"

namespace {
// What statfs(2) says every directory lies on; nothing: the truth.
std::optional<int64_t> pretended_file_system;
}  // namespace

// In place of the C library's.
extern "C" int statfs(const char* path, struct statfs* info) {
  static const auto real =
      reinterpret_cast<int (*)(const char*, struct statfs*)>(dlsym(RTLD_NEXT, "statfs"));
  const int result = real(path, info);
  if (result == 0 && pretended_file_system) info->f_type = *pretended_file_system;
  return result;
}

namespace penstock::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kGib = int64_t{1} << 30;

TEST(StartChecksTest, AMemoryLockLimitIsSaidWhereJobsOnAGpuNeedMore) {
  const ProcessLimits tight{.locked_bytes = 8 << 20, .open_files = 65536};
  EXPECT_THAT(WarningsAbout(tight, /*has_gpu=*/true, 100 * kGib, 1000),
              ElementsAre(testing::AllOf(HasSubstr("8.0 MiB of 100.0 GiB"),
                                         HasSubstr("LimitMEMLOCK=infinity"))));
  EXPECT_THAT(WarningsAbout(tight, /*has_gpu=*/false, 100 * kGib, 1000), IsEmpty());
  ProcessLimits capable = tight;
  capable.may_lock_any = true;
  EXPECT_THAT(WarningsAbout(capable, /*has_gpu=*/true, 100 * kGib, 1000), IsEmpty());
  const ProcessLimits unlimited{.open_files = 65536};
  EXPECT_THAT(WarningsAbout(unlimited, /*has_gpu=*/true, 100 * kGib, 1000), IsEmpty());
}

TEST(StartChecksTest, AFileLimitBelowWhatStreamsNeedIsSaid) {
  EXPECT_THAT(WarningsAbout({.open_files = 1024}, false, kGib, 1000),
              ElementsAre(HasSubstr("may open 1024 files, and 1256")));
  EXPECT_THAT(WarningsAbout({.open_files = 1256}, false, kGib, 1000), IsEmpty());
}

TEST(StartChecksTest, TheLimitsOfThisProcessAreRead) {
  struct rlimit limit {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(ReadProcessLimits().open_files, limit.rlim_cur);
}

std::optional<HostMemoryLimit> MemoryIn(const std::map<std::string, const char*>& variables) {
  static std::map<std::string, const char*> given;
  given = variables;
  return SlurmMemory([](const char* name) -> const char* {
    const auto found = given.find(name);
    return found == given.end() ? nullptr : found->second;
  });
}

TEST(StartChecksTest, WhatSlurmGaveIsALimit) {
  EXPECT_FALSE(MemoryIn({}));
  EXPECT_FALSE(MemoryIn({{"SLURM_MEM_PER_NODE", "0"}})) << "--mem=0 is all of the node";
  EXPECT_FALSE(MemoryIn({{"SLURM_MEM_PER_NODE", "much"}}));
  EXPECT_FALSE(MemoryIn({{"SLURM_MEM_PER_CPU", "100"}}));
  const auto node = MemoryIn({{"SLURM_MEM_PER_NODE", "2048"}, {"SLURM_MEM_PER_CPU", "1"}});
  ASSERT_TRUE(node);
  EXPECT_EQ(node->usable_bytes, 2 * kGib);
  EXPECT_EQ(node->source, "SLURM_MEM_PER_NODE");
  const auto cpus = MemoryIn({{"SLURM_MEM_PER_CPU", "512"}, {"SLURM_CPUS_ON_NODE", "4"}});
  ASSERT_TRUE(cpus);
  EXPECT_EQ(cpus->usable_bytes, 2 * kGib);
}

TEST(StartChecksTest, FileSystemsOfSeveralMachinesAreKnown) {
  EXPECT_STREQ(SharedFileSystemName(0x6969), "NFS");
  EXPECT_STREQ(SharedFileSystemName(0x0BD00BD0), "Lustre");
  // As a signed 32-bit field gives it.
  EXPECT_STREQ(SharedFileSystemName(static_cast<int32_t>(0xFF534D42)), "SMB");
  EXPECT_EQ(SharedFileSystemName(0xEF53), nullptr) << "ext4";
  EXPECT_EQ(SharedFileSystemName(0x01021994), nullptr) << "tmpfs";
  EXPECT_EQ(SharedFileSystemName(0x794C7630), nullptr) << "overlayfs, of containers";
}

TEST(StartChecksTest, AStateDirectoryOnNfsIsRefusedWithTheWayOut) {
  const TestDirectory directory;
  ASSERT_TRUE(StateDirectory::Prepare(directory.path() + "/local").ok());
  pretended_file_system = 0x6969;
  const absl::Status refused = StateDirectory::Prepare(directory.state()).status();
  pretended_file_system.reset();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(refused), reason::kConfigInvalid);
  EXPECT_EQ(MetadataOf(refused)["file_system"], "NFS");
  EXPECT_THAT(std::string(refused.message()),
              testing::AllOf(HasSubstr(directory.state() + " lies on NFS"),
                             HasSubstr("Choose a state_directory on a local disk")));
}

TEST(QueuePulseTest, AQueueThatHangsIsNoticedAndItsReturnToo) {
  TaskQueue moving("moving"), stuck("stuck");
  const auto settle = [](TaskQueue& queue) {
    std::promise<void> done;
    queue.Post([&done] { done.set_value(); });
    done.get_future().wait();
  };
  QueuePulse pulse({&moving, &stuck});
  EXPECT_TRUE(pulse.AllMoved());
  settle(moving);
  settle(stuck);
  EXPECT_TRUE(pulse.AllMoved());
  settle(moving);
  settle(stuck);
  std::promise<void> release;
  stuck.Post([held = release.get_future().share()] { held.wait(); });
  EXPECT_TRUE(pulse.AllMoved()) << "what it was given before has run";
  settle(moving);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(pulse.AllMoved());
    settle(moving);
  }
  release.set_value();
  settle(stuck);
  EXPECT_TRUE(pulse.AllMoved());
}

}  // namespace
}  // namespace penstock::server
