// Compares steps with their plan: a miss that lasts is said once, and again only after all had been
// as planned.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/engine.h"

namespace penstock {

class PlanWatch {
 public:
  // The first steps of a run are slower: files are read, clocks rise.
  static constexpr int64_t kWarmUpSteps = 2;
  // Steps whose mean is compared.
  static constexpr int64_t kCompared = 8;
  static constexpr double kDrift = 0.1;

  // A full step; the record has what was planned. What is to be said after it, if anything; its
  // `machine` and `refitted` are left empty.
  std::optional<PlanMissRecord> Add(const StepRecord& record);

 private:
  int64_t warm_up_left_ = kWarmUpSteps;
  int64_t compared_ = 0;
  double seconds_ = 0;
  bool missed_ = false;
};

// Of this process, what is not the page cache's. 0 where the system does not say.
int64_t ResidentBytes();

}  // namespace penstock
