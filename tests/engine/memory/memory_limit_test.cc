// BC-01: a limit may sit in any enclosing cgroup, of either version, and binds before the machine's
// memory does.
#include <filesystem>
#include <fstream>
#include <string>

#include "engine/memory/host_memory.h"
#include "gtest/gtest.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMib = int64_t{1} << 20;

class MemoryLimitTest : public ::testing::Test {
 protected:
  MemoryLimitTest() {
    std::string pattern = (fs::temp_directory_path() / "penstock-limits-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    Write("meminfo", "MemTotal: 16777216 kB\nMemAvailable:    8388608 kB\n");
    Write("groups", "0::/user.slice/job.scope\n");
  }
  ~MemoryLimitTest() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const fs::path file = fs::path(root_) / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  HostMemoryLimit Read() const {
    return ReadHostMemoryLimit({.meminfo = root_ + "/meminfo",
                                .groups = root_ + "/groups",
                                .cgroup_root = root_ + "/cgroup"});
  }
  std::string Cgroup(const std::string& path) const { return root_ + "/cgroup/" + path; }

  std::string root_;
};

TEST_F(MemoryLimitTest, WithoutALimitTheMachineBinds) {
  Write("cgroup/user.slice/job.scope/memory.max", "max\n");
  EXPECT_EQ(Read().usable_bytes, 8192 * kMib);
  EXPECT_EQ(Read().source, "machine");
}

TEST_F(MemoryLimitTest, ThatOfTheOwnGroupBindsLessWhatItHoldsButCacheThatGoes) {
  Write("cgroup/user.slice/job.scope/memory.max", std::to_string(768 * kMib));
  Write("cgroup/user.slice/job.scope/memory.current", std::to_string(200 * kMib));
  Write("cgroup/user.slice/job.scope/memory.stat",
        "anon 1\ninactive_file " + std::to_string(50 * kMib) + "\n");
  EXPECT_EQ(Read().usable_bytes, (768 - 200 + 50) * kMib);
  EXPECT_EQ(Read().source, Cgroup("user.slice/job.scope/memory.max"));
  // Lowered while all runs: seen by who asks next; and held already: nothing is left, never less.
  Write("cgroup/user.slice/job.scope/memory.max", std::to_string(100 * kMib));
  EXPECT_EQ(Read().usable_bytes, 0);
}

TEST_F(MemoryLimitTest, TheLeastOfAllEnclosingGroupsBinds) {
  Write("cgroup/user.slice/job.scope/memory.max", std::to_string(900 * kMib));
  Write("cgroup/user.slice/memory.max", std::to_string(768 * kMib));
  Write("cgroup/user.slice/memory.current", std::to_string(100 * kMib));
  EXPECT_EQ(Read().usable_bytes, 668 * kMib);
  EXPECT_EQ(Read().source, Cgroup("user.slice/memory.max"));
  // As a container sees it, whose own group is the root of what is mounted.
  Write("cgroup/memory.max", std::to_string(500 * kMib));
  EXPECT_EQ(Read().usable_bytes, 500 * kMib);
  EXPECT_EQ(Read().source, root_ + "/cgroup/memory.max");
}

TEST_F(MemoryLimitTest, OfVersionOneLikewise) {
  Write("groups", "12:cpu,cpuacct:/x\n7:memory:/docker/abc\n1:name=systemd:/y\n");
  Write("cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(Read().source, "machine");
  Write("cgroup/memory/docker/memory.limit_in_bytes", std::to_string(600 * kMib));
  Write("cgroup/memory/docker/memory.usage_in_bytes", std::to_string(100 * kMib));
  Write("cgroup/memory/docker/memory.stat",
        "total_inactive_file " + std::to_string(10 * kMib) + "\n");
  EXPECT_EQ(Read().usable_bytes, 510 * kMib);
  EXPECT_EQ(Read().source, Cgroup("memory/docker/memory.limit_in_bytes"));
}

TEST_F(MemoryLimitTest, BothVersionsAtOnceAndLinesThatAreNone) {
  Write("groups", "nonsense\n\n7:memory:/v1\n0::/v2\n");
  Write("cgroup/memory/v1/memory.limit_in_bytes", std::to_string(700 * kMib));
  Write("cgroup/v2/memory.max", std::to_string(300 * kMib));
  EXPECT_EQ(Read().usable_bytes, 300 * kMib);
  Write("cgroup/v2/memory.max", "many\n");
  EXPECT_EQ(Read().usable_bytes, 700 * kMib);
}

}  // namespace
}  // namespace penstock
