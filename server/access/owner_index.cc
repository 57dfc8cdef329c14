#include "server/access/owner_index.h"

namespace penstock::server {

std::string OwnedPart(std::string_view resource) {
  const size_t first = resource.find('/');
  const size_t second = first == std::string_view::npos ? first : resource.find('/', first + 1);
  return std::string(resource.substr(0, second));
}

void OwnerIndex::Set(const std::string& name, const std::string& owner) {
  std::lock_guard lock(mutex_);
  owners_[name] = owner;
}

void OwnerIndex::Remove(const std::string& name) {
  std::lock_guard lock(mutex_);
  owners_.erase(name);
}

std::optional<std::string> OwnerIndex::Find(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto found = owners_.find(name);
  if (found == owners_.end()) return std::nullopt;
  return found->second;
}

}  // namespace penstock::server
