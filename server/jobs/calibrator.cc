#include "server/jobs/calibrator.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "penstock/internal/worker.pb.h"
#include "server/jobs/process.h"
#include "server/store/state_directory.h"

namespace penstock::server {
namespace {

constexpr int kLimitMilliseconds = 150'000, kPollMilliseconds = 100, kKillMilliseconds = 5'000;
constexpr int64_t kMaxProfileBytes = 64 << 10;

std::string LastLine(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

}  // namespace

absl::StatusOr<v1::MachineProfile> Calibrator::Measure(const v1::Device& device) const {
  const std::string path = profiles_.PathOf(device);
  const std::string measured = path + ".new", assignment_path = path + ".pb", log = path + ".log";
  mkdir(profiles_.directory().c_str(), 0700);  // or it is there
  for (const std::string& leftover : {measured, log}) unlink(leftover.c_str());
  internal::Assignment assignment;
  assignment.set_device(device.id());
  internal::CalibrationWork& work = *assignment.mutable_calibration();
  work.set_storage_directory(options_.storage_directory);
  work.set_profile_path(measured);
  work.set_identity(profiles_.hooks().identity(device));
  PENSTOCK_RETURN_IF_ERROR(WriteFileDurably(assignment_path, assignment.SerializeAsString()));

  const bool cpu = device.kind() == v1::DEVICE_KIND_CPU;
  PENSTOCK_ASSIGN_OR_RETURN(ProcessHandle worker,
                            ProcessHandle::Spawn({.binary = options_.worker_binary,
                                                  .assignment_path = assignment_path,
                                                  .cuda_visible_devices = cpu ? "" : device.id(),
                                                  .log_path = log}));
  bool ended = false;
  for (int waited = 0; !ended && !stopped_ && waited < kLimitMilliseconds;
       waited += kPollMilliseconds) {
    ended = worker.WaitForEnd(kPollMilliseconds);
  }
  if (!ended) worker.Kill();
  // One that waits for a driver that hangs does not end, not even killed.
  if (worker.WaitForEnd(kKillMilliseconds)) waitpid(worker.pid(), nullptr, 0);
  unlink(assignment_path.c_str());
  if (stopped_) {
    return Error(absl::StatusCode::kUnavailable, reason::kServerDraining,
                 absl::StrCat(device.id(), " was not measured: the daemon stops"));
  }
  if (!ended) {
    return Error(absl::StatusCode::kDeadlineExceeded, reason::kDeviceFailed,
                 absl::StrCat("measuring ", device.id(), " took more than ",
                              kLimitMilliseconds / 1000, " s and was ended; its log is ", log),
                 {{"device", device.id()}});
  }
  const absl::StatusOr<std::string> text = ReadSmallFile(measured, kMaxProfileBytes);
  if (!text.ok()) {
    return Error(absl::StatusCode::kUnavailable, reason::kIoError,
                 absl::StrCat(device.id(), " was not measured: ", LastLine(log)),
                 {{"device", device.id()}});
  }
  PENSTOCK_ASSIGN_OR_RETURN(v1::MachineProfile profile, profiles_.hooks().read(*text, measured));
  PENSTOCK_RETURN_IF_ERROR(WriteFileDurably(path, *text));
  for (const std::string& done : {measured, log}) unlink(done.c_str());
  profile.set_device(device.id());
  profile.set_json(*text);
  return profile;
}

}  // namespace penstock::server
