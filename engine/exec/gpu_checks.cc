#include "engine/exec/gpu_checks.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"

namespace penstock {
namespace {

constexpr int kMinComputeMajor = 8;

std::string VersionName(int version) {
  return absl::StrFormat("%d.%d", version / 1000, version % 1000 / 10);
}

}  // namespace

absl::Status CheckDriverVersion(int driver_version, int needed_version) {
  if (driver_version == 0) {
    return Error(absl::StatusCode::kUnavailable, reason::kDeviceUnavailable,
                 "this machine has no CUDA driver (libcuda.so.1); install one, or run the job on "
                 "the CPU");
  }
  if (driver_version / 1000 >= needed_version / 1000) return absl::OkStatus();
  return Error(
      absl::StatusCode::kUnavailable, reason::kDeviceUnavailable,
      absl::StrCat("the GPU driver is too old: it runs CUDA up to ", VersionName(driver_version),
                   ", this build needs ", VersionName(needed_version),
                   "; update the driver, or build with an older CUDA toolkit"),
      {{"found", VersionName(driver_version)}, {"expected", VersionName(needed_version)}});
}

absl::Status CheckComputeCapability(const std::string& name, int major, int minor) {
  if (major >= kMinComputeMajor) return absl::OkStatus();
  return Error(absl::StatusCode::kUnimplemented, reason::kDeviceUnavailable,
               absl::StrFormat("%s has compute capability %d.%d; bf16 needs %d.0 or later; use "
                               "another card or run the job on the CPU",
                               name, major, minor, kMinComputeMajor));
}

}  // namespace penstock
