#include "server/access/call.h"

namespace penstock::server {
namespace {

thread_local std::shared_ptr<Call> current_call;

}  // namespace

bool Call::RightHasEnded(absl::Time now) const {
  const TokenState* const token = identity.token.get();
  return token != nullptr && (token->revoked || token->expire_time <= now);
}

std::shared_ptr<Call> CurrentCall() { return current_call; }

std::string CurrentUser() { return current_call == nullptr ? "" : current_call->user(); }

void NameResource(const std::string& name) {
  if (current_call != nullptr) current_call->resource = name;
}

CallScope::CallScope(std::shared_ptr<Call> call)
    : before_(std::exchange(current_call, std::move(call))) {}

CallScope::~CallScope() { current_call = std::move(before_); }

}  // namespace penstock::server
