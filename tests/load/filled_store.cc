#include "tests/load/filled_store.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/store/job_store.h"

namespace penstock::load {

std::string StoredName(int64_t i) { return absl::StrCat("jobs/stored-", i); }

absl::Status FillStore(const std::string& state_directory, const v1::Job& job, int64_t count) {
  constexpr v1::JobState kEnds[] = {v1::JOB_STATE_SUCCEEDED, v1::JOB_STATE_FAILED,
                                    v1::JOB_STATE_CANCELLED};
  PENSTOCK_ASSIGN_OR_RETURN(auto store, server::JobStore::Open(state_directory + "/jobs.db"));
  // Nobody was promised anything about these.
  PENSTOCK_RETURN_IF_ERROR(store->database().Execute("PRAGMA synchronous=OFF"));
  for (int64_t i = 0; i < count; ++i) {
    v1::Job stored = job;
    stored.set_name(StoredName(i));
    stored.set_state(kEnds[i % 3]);
    PENSTOCK_RETURN_IF_ERROR(store->InsertJobs({stored}, nullptr));
  }
  return absl::OkStatus();
}

}  // namespace penstock::load
