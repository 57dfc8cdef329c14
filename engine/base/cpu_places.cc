#include "engine/base/cpu_places.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/check.h"

namespace penstock {
namespace {

constexpr int kMaxCpu = 65535;

bool ParseCpu(absl::string_view text, int& cpu) {
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
  return digits && absl::SimpleAtoi(text, &cpu) && cpu <= kMaxCpu;
}

CpuSet UsableCpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {};
  CpuSet cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// Empty if the file is not there or unreadable.
std::vector<int> ReadList(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return ParseCpuList(text.str()).value_or(CpuSet());
}

int TotalCpus(const std::vector<CpuSet>& cpus_by_node) {
  int total = 0;
  for (const CpuSet& cpus : cpus_by_node) total += static_cast<int>(cpus.size());
  return total;
}

}  // namespace

absl::StatusOr<CpuSet> ParseCpuList(absl::string_view text) {
  CpuSet cpus;
  text = absl::StripAsciiWhitespace(text);
  if (text.empty()) return cpus;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    int first = 0, last = 0;
    if (ends.size() > 2 || !ParseCpu(ends.front(), first) || !ParseCpu(ends.back(), last) ||
        last < first) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", part, "\" in a list of CPUs; expected a number or first-last, up to ", kMaxCpu));
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::vector<CpuSet> UsableCpusByNode(const std::string& node_directory) {
  const CpuSet usable = UsableCpus();
  std::vector<CpuSet> by_node;
  // Node numbers have gaps, so their list is read, which has the format of the CPUs'.
  for (const int node : ReadList(absl::StrCat(node_directory, "/online"))) {
    const CpuSet of_node = ReadList(absl::StrCat(node_directory, "/node", node, "/cpulist"));
    CpuSet both;
    std::set_intersection(usable.begin(), usable.end(), of_node.begin(), of_node.end(),
                          std::back_inserter(both));
    if (!both.empty()) by_node.push_back(both);
  }
  // Lists that leave a CPU out, or name one twice, are not to be believed.
  if (TotalCpus(by_node) == static_cast<int>(usable.size()) || usable.empty()) return by_node;
  return {usable};
}

std::vector<CpuSet> PlaceThreads(const std::vector<CpuSet>& cpus_by_node, int threads,
                                 int spare_cpus) {
  PENSTOCK_CHECK(threads >= 1 && spare_cpus >= 0,
                 absl::StrCat("threads = ", threads, ", spare_cpus = ", spare_cpus));
  const int total = TotalCpus(cpus_by_node);
  if (threads > total) return {};
  const bool one_each = total - threads <= spare_cpus;
  if (!one_each && cpus_by_node.size() == 1) return {};
  std::vector<CpuSet> places;
  int64_t cpus_seen = 0;
  for (const CpuSet& cpus : cpus_by_node) {
    cpus_seen += static_cast<int64_t>(cpus.size());
    // Rounded ends of adjoining shares: a share is at most ceil of an exact one, so it fits.
    const int end = static_cast<int>(threads * cpus_seen / total);
    const size_t here = end - places.size();
    for (size_t i = 0; i < here; ++i) {
      places.push_back(one_each ? CpuSet{cpus[cpus.size() - here + i]} : cpus);
    }
  }
  return places;
}

std::vector<CpuSet> PlacesForPool(int threads) {
  const std::vector<CpuSet> cpus = UsableCpusByNode();
  return PlaceThreads(cpus, threads, /*spare_cpus=*/TotalCpus(cpus) / 4);
}

bool Bind(std::thread& thread, const CpuSet& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) {
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  }
  return pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set) == 0;
}

}  // namespace penstock
