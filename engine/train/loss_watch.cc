#include "engine/train/loss_watch.h"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

// Below this share of the mean a difference is no spike, however quiet the losses were.
constexpr double kLeastDeviation = 0.01;

}  // namespace

LossWatch::Verdict LossWatch::Add(double loss) {
  Verdict verdict{.mean = mean_};
  const double deviation = std::max(std::sqrt(variance_), kLeastDeviation * std::abs(mean_));
  if (count_ >= kWarmUpSteps && deviation > 0) {
    verdict.z_score = (loss - mean_) / deviation;
    verdict.spike = verdict.z_score > kSpike;
    verdict.begins = verdict.spike && !in_spike_;
    // A spike counts as the largest loss that is none: it must not hide the next, and a level to
    // which losses have gone for good becomes the usual one.
    loss = std::min(loss, mean_ + kSpike * deviation);
  }
  in_spike_ = verdict.spike;
  ++count_;
  // The first losses count alike, later ones fade.
  const double share = 1 / static_cast<double>(std::min(count_, kWarmUpSteps));
  const double difference = loss - mean_;
  mean_ += share * difference;
  variance_ = (1 - share) * (variance_ + share * difference * difference);
  return verdict;
}

}  // namespace penstock
