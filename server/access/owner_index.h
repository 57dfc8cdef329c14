// Whose every job and upload is, for checks before a call goes on to the thread that owns them.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::server {

// "jobs/x" of "jobs/x/checkpoints/5": the resource that has an owner.
std::string OwnedPart(std::string_view resource);

// Thread-safe. Names are "jobs/{id}" and "uploads/{id}"; who makes or removes one says so here.
class OwnerIndex {
 public:
  void Set(const std::string& name, const std::string& owner);
  void Remove(const std::string& name);
  // Nothing for a name that is not there.
  std::optional<std::string> Find(const std::string& name) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> owners_;  // guarded by mutex_
};

}  // namespace penstock::server
