// The audit log as a chain: each entry's hash covers the one before it, as AuditEntry.hash
// documents. The daemon appends with it, and readers check with it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "penstock/v1/admin_service.pb.h"

namespace penstock::server {

// What the first entry follows: 64 zeros.
std::string FirstAuditHash();
// Of `entry`, whose own hash does not count, after an entry with hash `before`.
std::string AuditHash(const std::string& before, const v1::AuditEntry& entry);

// Reads the log entry by entry, oldest first.
class AuditChain {
 public:
  // DataLoss / AUDIT_BROKEN, naming the entry, unless it follows those before it.
  absl::Status Follow(const v1::AuditEntry& entry);
  // The same unless the chain has come to the newest entry that the daemon says there is: entries
  // cut off at the end leave a chain that is whole.
  absl::Status CheckEnd(int64_t last_sequence, const std::string& last_hash) const;

  int64_t sequence() const { return sequence_; }
  const std::string& hash() const { return hash_; }

 private:
  int64_t sequence_ = 0;
  std::string hash_ = FirstAuditHash();
};

}  // namespace penstock::server
