#include "client/checkpoint_list.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/job_text.h"
#include "engine/base/status.h"

namespace penstock::client {
namespace {

absl::StatusOr<std::string> NewestCheckpoint(RpcClient& client, const std::string& job) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ListCheckpointsResponse all, ListAllCheckpoints(client, job));
  if (all.checkpoints().empty()) {
    return Error(absl::StatusCode::kNotFound, reason::kCheckpointNotFound,
                 absl::StrCat(job, ": has no checkpoint; one is written when the job ends, or ",
                              "every checkpoints.every_steps steps"));
  }
  return all.checkpoints(all.checkpoints_size() - 1).name();
}

}  // namespace

absl::StatusOr<v1::ListCheckpointsResponse> ListAllCheckpoints(RpcClient& client,
                                                               const std::string& job) {
  v1::ListCheckpointsRequest request;
  request.set_parent(job);
  v1::ListCheckpointsResponse all;
  while (true) {
    absl::StatusOr<v1::ListCheckpointsResponse> page =
        client.Call(client.checkpoints(), &v1::CheckpointService::Stub::ListCheckpoints, request);
    if (!page.ok()) return page.status();
    for (v1::Checkpoint& checkpoint : *page->mutable_checkpoints()) {
      *all.add_checkpoints() = std::move(checkpoint);
    }
    if (page->next_page_token().empty()) return all;
    request.set_page_token(page->next_page_token());
  }
}

absl::Status WithCheckpoint(RpcClient& client, const std::string& text,
                            absl::FunctionRef<absl::Status(const std::string& checkpoint)> use) {
  const std::string name = JobName(text);
  if (absl::StrContains(name, "/checkpoints/")) return use(name);
  constexpr int kAttempts = 5;
  for (int attempt = 1;; ++attempt) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string newest, NewestCheckpoint(client, name));
    const absl::Status used = use(newest);
    if (ReasonOf(used) != reason::kCheckpointNotFound || attempt == kAttempts) return used;
  }
}

}  // namespace penstock::client
