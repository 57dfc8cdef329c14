#include "engine/train/loss_watch.h"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

// Below this share of the mean a difference is no spike, however quiet the losses were.
constexpr double kLeastDeviation = 0.01;

}  // namespace

LossWatch::Verdict LossWatch::Add(double loss) {
  auto& [losses, mean, variance, in_spike] = memory_;
  Verdict verdict{.mean = mean};
  const double deviation = std::max(std::sqrt(variance), kLeastDeviation * std::abs(mean));
  if (losses >= kWarmUpSteps && deviation > 0) {
    verdict.z_score = (loss - mean) / deviation;
    verdict.spike = verdict.z_score > threshold_;
    verdict.begins = verdict.spike && !in_spike;
    // A spike counts as the largest loss that is none: it must not hide the next, and a level to
    // which losses have gone for good becomes the usual one.
    loss = std::min(loss, mean + threshold_ * deviation);
  }
  in_spike = verdict.spike;
  ++losses;
  // The first losses count alike, later ones fade.
  const double share = 1 / static_cast<double>(std::min(losses, kWarmUpSteps));
  const double difference = loss - mean;
  mean += share * difference;
  variance = (1 - share) * (variance + share * difference * difference);
  return verdict;
}

}  // namespace penstock
