#include "engine/base/cpu_places.h"

#include <sched.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/thread_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ParseCpuListTest, ReadsNumbersAndRanges) {
  EXPECT_THAT(*ParseCpuList("0-3,8,10-11\n"), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(*ParseCpuList("5"), ElementsAre(5));
  EXPECT_THAT(*ParseCpuList("\n"), IsEmpty());
  EXPECT_THAT(*ParseCpuList("4,2-3,3-4"), ElementsAre(2, 3, 4));
}

TEST(ParseCpuListTest, RefusesAnythingElse) {
  for (const char* text : {"a", "1-", "-1", "1--2", "3-1", "1,,2", "1-2-3", "0x1", "1 2", "65536",
                           "99999999999999999999", "+1"}) {
    const auto cpus = ParseCpuList(text);
    EXPECT_EQ(cpus.status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(PlaceThreadsTest, ThreadsThatFillTheMachineGetACpuEach) {
  EXPECT_THAT(PlaceThreads({{0, 1, 2, 3}}, 4, 0),
              ElementsAre(CpuSet{0}, CpuSet{1}, CpuSet{2}, CpuSet{3}));
}

TEST(PlaceThreadsTest, TheLowestCpusOfANodeStayFree) {
  EXPECT_THAT(PlaceThreads({{2, 3, 5, 7}}, 3, 1), ElementsAre(CpuSet{3}, CpuSet{5}, CpuSet{7}));
  EXPECT_THAT(PlaceThreads({{0, 2, 4}, {1, 3, 5}}, 4, 2),
              ElementsAre(CpuSet{2}, CpuSet{4}, CpuSet{3}, CpuSet{5}));
}

TEST(PlaceThreadsTest, SmallPoolsMayMoveWithinTheirNode) {
  EXPECT_THAT(PlaceThreads({{0, 1, 2, 3}}, 2, 1), IsEmpty());
  EXPECT_THAT(PlaceThreads({{0, 1}, {2, 3}}, 2, 1), ElementsAre(CpuSet{0, 1}, CpuSet{2, 3}));
}

TEST(PlaceThreadsTest, MoreThreadsThanCpusAreLeftAlone) {
  EXPECT_THAT(PlaceThreads({{0, 1}}, 3, 0), IsEmpty());
  EXPECT_THAT(PlaceThreads({}, 1, 0), IsEmpty());
}

// Every shape: no CPU twice, nodes in order, and as many threads a node as its share of CPUs.
TEST(PlaceThreadsTest, NodesGetThreadsInProportion) {
  const std::vector<CpuSet> nodes = {{0, 1, 2, 3, 4, 5, 6}, {7}, {8, 9, 10, 11}};
  for (int threads = 1; threads <= 12; ++threads) {
    const std::vector<CpuSet> places = PlaceThreads(nodes, threads, /*spare_cpus=*/12);
    ASSERT_EQ(places.size(), static_cast<size_t>(threads));
    std::vector<int> used;
    for (const CpuSet& place : places) {
      ASSERT_EQ(place.size(), 1u);
      used.push_back(place.front());
    }
    EXPECT_TRUE(std::is_sorted(used.begin(), used.end())) << "nodes in order";
    EXPECT_EQ(std::adjacent_find(used.begin(), used.end()), used.end()) << "a CPU twice";
    for (const CpuSet& node : nodes) {
      const auto here = std::count_if(used.begin(), used.end(), [&](int cpu) {
        return std::find(node.begin(), node.end(), cpu) != node.end();
      });
      EXPECT_NEAR(static_cast<double>(here), static_cast<double>(threads * node.size()) / 12,
                  0.999);
    }
  }
}

CpuSet AffinityMask() {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  CpuSet cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

class NodeDirectory {
 public:
  NodeDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "nodes-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~NodeDirectory() { std::filesystem::remove_all(path_); }
  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = path_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::string ToList(const CpuSet& cpus) {
  std::string text;
  for (const int cpu : cpus) text += (text.empty() ? "" : ",") + std::to_string(cpu);
  return text + "\n";
}

TEST(UsableCpusByNodeTest, SplitsTheAffinityMask) {
  const CpuSet mask = AffinityMask();
  const CpuSet first(mask.begin(), mask.begin() + 1), rest(mask.begin() + 1, mask.end());
  NodeDirectory directory;
  directory.Write("online", "0,3-4\n");
  directory.Write("node0/cpulist", ToList(first));
  directory.Write("node3/cpulist", "60000\n");  // a node of others
  directory.Write("node4/cpulist", ToList(rest));
  std::vector<CpuSet> wanted = {first};
  if (!rest.empty()) wanted.push_back(rest);
  EXPECT_EQ(UsableCpusByNode(directory.path()), wanted);
}

TEST(UsableCpusByNodeTest, ListsThatCannotBeRightGiveOneNode) {
  const std::vector<CpuSet> wanted = {AffinityMask()};
  NodeDirectory directory;
  EXPECT_EQ(UsableCpusByNode(directory.path()), wanted) << "no lists";
  directory.Write("online", "0-1\n");
  directory.Write("node0/cpulist", ToList(wanted.front()));
  directory.Write("node1/cpulist", ToList(wanted.front()));
  EXPECT_EQ(UsableCpusByNode(directory.path()), wanted) << "CPUs in two nodes";
  directory.Write("node0/cpulist", "60000\n");
  directory.Write("node1/cpulist", "broken");
  EXPECT_EQ(UsableCpusByNode(directory.path()), wanted) << "CPUs in none";
}

TEST(BindTest, PoolThreadsRunWhereTheyWerePutAndTheCallerAnywhere) {
  const CpuSet mask = AffinityMask();
  ThreadPool pool(2, {{mask.front()}, {mask.back()}});
  std::vector<CpuSet> masks(2);
  std::atomic<int> arrived = 0;
  pool.ParallelFor(2, [&](int64_t, int worker) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();  // or one thread would run both
    masks[worker] = AffinityMask();
  });
  EXPECT_EQ(masks[0], mask);
  EXPECT_THAT(masks[1], ElementsAre(mask.back()));
}

TEST(BindTest, ARefusedBindingLeavesTheThreadWorking) {
  ThreadPool pool(2, {{1023}, {1023}});  // a CPU that no machine of ours has
  std::atomic<int> arrived = 0;
  pool.ParallelFor(2, [&](int64_t, int) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
  std::thread idle([] {});
  EXPECT_FALSE(Bind(idle, {1023}));
  EXPECT_FALSE(Bind(idle, {}));
  idle.join();
}

}  // namespace
}  // namespace penstock
