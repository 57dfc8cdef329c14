#include "server/access/audit_chain.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/provenance/sha256.h"
#include "server/reasons.h"

namespace penstock::server {
namespace {

void Append(std::string& bytes, absl::string_view text) {
  for (int shift = 0; shift < 64; shift += 8) {
    bytes += static_cast<char>((uint64_t{text.size()} >> shift) & 0xFF);
  }
  absl::StrAppend(&bytes, text);
}

absl::Status Broken(int64_t sequence, const std::string& why) {
  return Error(absl::StatusCode::kDataLoss, reason::kAuditBroken,
               absl::StrCat("the audit log is broken at entry ", sequence, ": ", why,
                            ". Somebody changed the daemon's database; compare it with a backup"),
               {{"sequence", absl::StrCat(sequence)}});
}

}  // namespace

std::string FirstAuditHash() { return std::string(64, '0'); }

std::string AuditHash(const std::string& before, const v1::AuditEntry& entry) {
  std::string bytes;
  Append(bytes, before);
  Append(bytes, absl::StrCat(entry.sequence()));
  Append(bytes, absl::StrCat(entry.time().seconds()));
  Append(bytes, entry.user());
  Append(bytes, absl::StrCat(static_cast<int>(entry.role())));
  Append(bytes, entry.token());
  Append(bytes, entry.peer());
  Append(bytes, entry.method());
  Append(bytes, entry.resource());
  Append(bytes, entry.request_sha256());
  return Sha256Of(bytes);
}

absl::Status AuditChain::Follow(const v1::AuditEntry& entry) {
  if (entry.sequence() != sequence_ + 1) {
    return Broken(sequence_ + 1, absl::StrCat("found entry ", entry.sequence(), " in its place"));
  }
  const std::string hash = AuditHash(hash_, entry);
  if (entry.hash() != hash) {
    return Broken(entry.sequence(), "its hash is not that of its contents and of the entry before");
  }
  sequence_ = entry.sequence();
  hash_ = hash;
  return absl::OkStatus();
}

absl::Status AuditChain::CheckEnd(int64_t last_sequence, const std::string& last_hash) const {
  if (sequence_ == last_sequence && (sequence_ == 0 || hash_ == last_hash)) {
    return absl::OkStatus();
  }
  return Broken(sequence_ + 1,
                absl::StrCat("the entries end there, and the daemon has written ", last_sequence));
}

}  // namespace penstock::server
