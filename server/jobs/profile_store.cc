#include "server/jobs/profile_store.h"

#include "absl/strings/str_cat.h"
#include "server/store/state_directory.h"

namespace penstock::server {
namespace {

constexpr int64_t kMaxProfileBytes = 64 << 10;

}  // namespace

std::string ProfileStore::PathOf(const v1::Device& device) const {
  return absl::StrCat(directory_, "/", device.id(), ".json");
}

ProfileStore::Found ProfileStore::Find(const v1::Device& device) const {
  constexpr char kInstead[] = "; plans are made of what is known by the device's name instead";
  const std::string path = PathOf(device);
  absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxProfileBytes);
  if (absl::IsNotFound(text.status())) return {};
  if (!text.ok()) return {.json = {}, .warning = std::string(text.status().message()) + kInstead};
  const absl::StatusOr<v1::MachineProfile> profile = hooks_.read(*text, path);
  if (!profile.ok()) {
    return {.json = {}, .warning = std::string(profile.status().message()) + kInstead};
  }
  const std::string now = hooks_.identity(device);
  if (profile->identity() == now) return {.json = *std::move(text), .warning = {}};
  return {.json = {},
          .warning = absl::StrCat("the machine profile of ", device.id(), " was measured on \"",
                                  profile->identity(), "\", and this is \"", now, "\"", kInstead,
                                  "; penstock calibrate measures it again")};
}

}  // namespace penstock::server
