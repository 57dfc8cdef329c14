#include "engine/plan/contention.h"

#include <algorithm>

namespace penstock {
namespace {

// However much the copies are said to take.
constexpr double kLeastAdamwShare = 0.1;

double& SpeedOf(Lane lane, Contention::Speeds& speeds) { return speeds[static_cast<size_t>(lane)]; }

}  // namespace

Contention Contention::None() {
  Contention none;
  for (Speeds& speeds : none.speeds) speeds.fill(1);
  return none;
}

Contention ContentionOf(const MachineProfile& machine) {
  Contention contention = Contention::None();
  const double adamw_bytes = kAdamwHostBytes * machine.adamw_parameters;
  for (unsigned lanes = 0; lanes < contention.speeds.size(); ++lanes) {
    Contention::Speeds& speeds = contention.speeds[lanes];
    const bool in = (lanes & LaneBit(Lane::kCopyIn)) != 0;
    const bool out = (lanes & LaneBit(Lane::kCopyOut)) != 0;
    if (in && out) {
      SpeedOf(Lane::kCopyIn, speeds) = machine.copy_in_share_beside_out;
      SpeedOf(Lane::kCopyOut, speeds) = machine.copy_out_share_beside_in;
    }
    if ((lanes & LaneBit(Lane::kHost)) != 0) {
      double &in_speed = SpeedOf(Lane::kCopyIn, speeds),
             &out_speed = SpeedOf(Lane::kCopyOut, speeds);
      in_speed = std::min(in_speed, machine.copy_in_share_beside_adamw);
      out_speed = std::min(out_speed, machine.copy_out_share_beside_adamw);
    }
    double copied = 0;
    if (in) copied += machine.copy_in_bytes * SpeedOf(Lane::kCopyIn, speeds);
    if (out) copied += machine.copy_out_bytes * SpeedOf(Lane::kCopyOut, speeds);
    if (copied > 0) {
      SpeedOf(Lane::kHost, speeds) =
          std::clamp((machine.host_bytes - copied) / adamw_bytes, kLeastAdamwShare, 1.0);
    }
  }
  return contention;
}

}  // namespace penstock
