#include "tests/engine/exec/random_program.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "engine/plan/hazards.h"

namespace penstock {
namespace {

// A random order of the ops that keeps every hazard of the list: repeatedly takes one of the
// ops whose predecessors are all out. Sums keep the order of their terms, since each term
// updates the buffer.
void Shuffle(StepProgram& program, std::mt19937& random) {
  const size_t count = program.ops.size();
  std::vector<std::vector<size_t>> followers(count);
  std::vector<int> waits(count, 0);
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < i; ++j) {
      // One tracker for each pair: quadratic, but it is the plainest statement of a hazard.
      HazardTracker pair(program);
      for (const Access& access : AccessesOf(program, program.ops[j])) {
        pair.Record(static_cast<int32_t>(j), Lane::kCompute, access);
      }
      bool conflict = false;
      for (const Access& access : AccessesOf(program, program.ops[i])) {
        conflict |= pair.Predecessors(access) != kNoOps;
      }
      if (!conflict) continue;
      followers[j].push_back(i);
      ++waits[i];
    }
  }
  std::vector<size_t> ready;
  for (size_t i = 0; i < count; ++i) {
    if (waits[i] == 0) ready.push_back(i);
  }
  std::vector<Op> ops;
  while (!ready.empty()) {
    const size_t pick = random() % ready.size();
    const size_t op = ready[pick];
    ready.erase(ready.begin() + static_cast<int64_t>(pick));
    ops.push_back(program.ops[op]);
    for (size_t follower : followers[op]) {
      if (--waits[follower] == 0) ready.push_back(follower);
    }
  }
  program.ops = std::move(ops);
}

// Copies and reductions may run on any lane whose thread pool is theirs alone; the CPU backend
// has one pool a lane, chosen by the op, so only ops that share none of it may move: fetches to
// the copy-out lane would share the copy-in pool with other fetches. So all ops of one kind move
// together.
void MoveLanes(StepProgram& program, std::mt19937& random) {
  Lane fetch = Lane::kCopyIn, store = Lane::kCopyOut;
  if (random() % 2 == 0) std::swap(fetch, store);
  for (Op& op : program.ops) {
    if (std::holds_alternative<FetchWeights>(op.body)) op.lane = fetch;
    if (std::holds_alternative<StoreGradients>(op.body)) op.lane = store;
  }
}

// The same buffers at other places of the arena.
void MoveBuffers(StepProgram& program, std::mt19937& random) {
  std::vector<size_t> order(program.buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  int64_t end = 0;
  for (size_t index : order) {
    program.buffers[index].offset = end;
    end += (program.buffers[index].bytes + 4095) / 4096 * 4096;
  }
}

}  // namespace

StepProgram Scramble(StepProgram program, uint64_t seed) {
  std::mt19937 random(seed);
  Shuffle(program, random);
  MoveLanes(program, random);
  MoveBuffers(program, random);
  DeriveOrder(program);
  return program;
}

}  // namespace penstock
