// Who makes the call that the current thread works for.
//
// The door (server/rpc/door.h) lets a call in and makes a Call of it; TaskQueue::Post() carries it
// along with the work, from queue to queue. So whatever is done for a call finds its caller here:
// the owner of a new job, the audit row of a transaction. No handler has to hand it on, and none
// can forget to. A thread without a Call works for the daemon itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "penstock/v1/admin_service.pb.h"

namespace penstock::server {

// What a token's open streams look at.
struct TokenState {
  std::string name;  // tokens/{id}
  absl::Time expire_time = absl::InfiniteFuture();
  std::atomic<bool> revoked = false;
};

// Who it is, and by what it is known.
struct Identity {
  v1::Caller caller;
  std::shared_ptr<const TokenState> token;  // null: known by the socket or a certificate
};

struct Call {
  Identity identity;
  std::string peer;    // "unix", or an address
  std::string method;  // "penstock.v1.JobService/CancelJob"
  // What AuditEntry has of it. Only of calls that change something.
  bool changes = false;
  std::string request_sha256;
  // These two belong to the control thread. A call that makes its resource names it there.
  std::string resource;
  bool audited = false;

  const std::string& user() const { return identity.caller.user(); }
  // The token has been revoked or has expired since the call began: a stream has to end. Any
  // thread.
  bool RightHasEnded(absl::Time now) const;
};

// Null: the daemon itself.
std::shared_ptr<Call> CurrentCall();
// The caller's user; "" for the daemon itself.
std::string CurrentUser();
// Names what the current call has made; without a call, nothing.
void NameResource(const std::string& name);

// Makes `call` the thread's current one until the scope ends.
class CallScope {
 public:
  explicit CallScope(std::shared_ptr<Call> call);
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
  ~CallScope();

 private:
  std::shared_ptr<Call> before_;
};

}  // namespace penstock::server
