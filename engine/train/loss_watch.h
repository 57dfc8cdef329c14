// Tells a loss that is out of line with those of the steps before. Its memory is in every
// checkpoint: a run that goes on judges as one that did not stop.
#pragma once

#include <cstdint>

namespace penstock {

struct LossMemory {
  int64_t losses = 0;  // that were added
  double mean = 0, variance = 0;
  bool in_spike = false;  // the last was one
};

class LossWatch {
 public:
  // Losses that are needed before one is judged, and how far back memory reaches.
  static constexpr int64_t kWarmUpSteps = 50;

  struct Verdict {
    double z_score = 0;  // 0 while there is too little to judge by
    double mean = 0;     // of the losses before
    bool spike = false;
    bool begins = false;  // a spike, and the loss before was none
  };

  // So many standard deviations above the mean are a spike. REQUIRES: more than 0.
  explicit LossWatch(double threshold) : threshold_(threshold) {}

  // The loss of the next step that was applied; finite.
  Verdict Add(double loss);

  const LossMemory& memory() const { return memory_; }
  void set_memory(const LossMemory& memory) { memory_ = memory; }

 private:
  double threshold_;
  LossMemory memory_;
};

}  // namespace penstock
