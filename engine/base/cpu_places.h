// Which CPUs the threads of a pool may run on.
//
// Threads are laid out node by node: thread i of n, and with it share i of a ParallelFor's tasks
// (thread_pool.h), always belongs to the same NUMA node. Memory that a pool has touched first
// (memory/touch_pages.h) is thus near the threads that later work on the same share of it.
//
// No environment variable is read: what the process may use is its affinity mask.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock {

// CPU numbers, ascending.
using CpuSet = std::vector<int>;

// The kernel's list format: "0-3,8,10-11\n"; empty for none. InvalidArgument for anything else,
// numbers above 65535 included.
absl::StatusOr<CpuSet> ParseCpuList(absl::string_view text);

// The CPUs this process may run on, by NUMA node, nodes without any left out. One set where the
// system tells no nodes; none where it does not even tell the affinity mask. `node_directory`
// holds online, the list of nodes, and node<N>/cpulist.
std::vector<CpuSet> UsableCpusByNode(
    const std::string& node_directory = "/sys/devices/system/node");

// The CPUs for each of `threads` threads, or nothing where the kernel does best by itself: there
// are no CPUs known, or more threads than CPUs, or one node that the threads do not fill.
//
// Nodes get threads in proportion to their CPUs. Threads that fill their node, all but
// `spare_cpus` of the machine's, get one CPU each; the lowest stay free, where interrupts and the
// driver's threads mostly run. Threads that leave more free than that may run on all of their
// node's: two small pools of different processes would otherwise meet on the same CPUs.
// REQUIRES: threads >= 1, spare_cpus >= 0.
std::vector<CpuSet> PlaceThreads(const std::vector<CpuSet>& cpus_by_node, int threads,
                                 int spare_cpus);

// PlaceThreads of this process's CPUs; a quarter of them may be spare, for the threads of lanes
// and drivers.
std::vector<CpuSet> PlacesForPool(int threads);

// False if the kernel refuses (a CPU went offline, a container forbids it): the thread then runs
// anywhere, only slower.
bool Bind(std::thread& thread, const CpuSet& cpus);

}  // namespace penstock
