// Tells a loss that is out of line with those of the steps before. It decides nothing: weights and
// order are the same with and without it, so its memory is of this process alone.
#pragma once

#include <cstdint>

namespace penstock {

class LossWatch {
 public:
  // So many standard deviations above the mean are a spike.
  static constexpr double kSpike = 6;
  // Losses that are needed before one is judged, and how far back memory reaches.
  static constexpr int64_t kWarmUpSteps = 50;

  struct Verdict {
    double z_score = 0;  // 0 while there is too little to judge by
    double mean = 0;     // of the losses before
    bool spike = false;
    bool begins = false;  // a spike, and the loss before was none
  };

  // The loss of the next step that was applied; finite.
  Verdict Add(double loss);

 private:
  int64_t count_ = 0;
  double mean_ = 0, variance_ = 0;
  bool in_spike_ = false;
};

}  // namespace penstock
