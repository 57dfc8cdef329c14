#include "engine/train/usable_cores.h"

#include <cstdlib>
#include <filesystem>

#include "gtest/gtest.h"
#include "tests/engine/train/weights_testing.h"

namespace penstock {
namespace {

using testing::TempDir;
using testing::WriteFileOrDie;

void WriteUnder(const TempDir& dir, const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(dir.Path(path)).parent_path());
  WriteFileOrDie(dir.Path(path), text);
}

TEST(UsableCoresTest, Bc59TheTightestQuotaOfAllGroupsAboveCounts) {
  TempDir dir;
  WriteUnder(dir, "cgroup", "0::/slice/job\n");
  EXPECT_EQ(CpuQuotaCores(dir.Path("cgroup"), dir.Path("fs")), 0) << "no limit anywhere";
  WriteUnder(dir, "fs/slice/job/cpu.max", "max 100000\n");
  EXPECT_EQ(CpuQuotaCores(dir.Path("cgroup"), dir.Path("fs")), 0);
  WriteUnder(dir, "fs/slice/cpu.max", "150000 100000\n");
  EXPECT_EQ(CpuQuotaCores(dir.Path("cgroup"), dir.Path("fs")), 2) << "1.5 cores keep 2 busy";
  WriteUnder(dir, "fs/slice/job/cpu.max", "50000 100000\n");
  EXPECT_EQ(CpuQuotaCores(dir.Path("cgroup"), dir.Path("fs")), 1);
}

TEST(UsableCoresTest, Bc59QuotasOfTheOlderCgroupsCountToo) {
  TempDir dir;
  WriteUnder(dir, "cgroup", "5:memory:/elsewhere\n4:cpu,cpuacct:/box\n");
  WriteUnder(dir, "fs/cpu/box/cpu.cfs_quota_us", "-1\n");
  WriteUnder(dir, "fs/cpu/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CpuQuotaCores(dir.Path("cgroup"), dir.Path("fs")), 0);
  WriteUnder(dir, "fs/cpu/box/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(CpuQuotaCores(dir.Path("cgroup"), dir.Path("fs")), 3);
}

TEST(UsableCoresTest, NonsenseIsNoLimit) {
  TempDir dir;
  WriteUnder(dir, "cgroup", "not a cgroup file\n0::\n0::/a\n");
  WriteUnder(dir, "fs/a/cpu.max", "many few\n");
  EXPECT_EQ(CpuQuotaCores(dir.Path("cgroup"), dir.Path("fs")), 0);
  EXPECT_EQ(CpuQuotaCores(dir.Path("missing"), dir.Path("fs")), 0);
}

TEST(UsableCoresTest, Bc59NoVariableOfALauncherChangesTheNumber) {
  const int cores = UsableCores();
  EXPECT_GE(cores, 1);
  setenv("OMP_NUM_THREADS", "999", 1);
  EXPECT_EQ(UsableCores(), cores);
  setenv("OMP_NUM_THREADS", "1", 1);
  EXPECT_EQ(UsableCores(), cores);
  unsetenv("OMP_NUM_THREADS");
}

}  // namespace
}  // namespace penstock
