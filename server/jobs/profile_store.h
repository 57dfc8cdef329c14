// Profiles that were measured of this machine's devices, a file each, and whether they still hold:
// rates are those of a card, a driver, a CPU and its memory, and of no others.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "penstock/v1/admin_service.pb.h"
#include "penstock/v1/device.pb.h"

namespace penstock::server {

// What the engine knows of profiles.
struct ProfileHooks {
  // InvalidArgument / PROFILE_INVALID naming `origin`.
  std::function<absl::StatusOr<v1::MachineProfile>(const std::string& json,
                                                   const std::string& origin)>
      read;
  // Of the device and this machine, as a profile that is measured now would have it.
  std::function<std::string(const v1::Device& device)> identity;
};

// Thread-safe: it only reads files.
class ProfileStore {
 public:
  ProfileStore(std::string directory, ProfileHooks hooks)
      : directory_(std::move(directory)), hooks_(std::move(hooks)) {}

  const std::string& directory() const { return directory_; }
  const ProfileHooks& hooks() const { return hooks_; }
  std::string PathOf(const v1::Device& device) const;

  struct Found {
    std::string json;     // empty: none that holds
    std::string warning;  // why one that is there does not hold, and the way out
  };
  Found Find(const v1::Device& device) const;

 private:
  const std::string directory_;
  const ProfileHooks hooks_;
};

}  // namespace penstock::server
