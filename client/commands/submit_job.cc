#include "client/commands/submit_job.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace penstock::client {

absl::StatusOr<v1::Job> CreateJob(RpcClient& client, v1::CreateJobRequest& request) {
  request.set_request_id(NewRequestId());
  PENSTOCK_ASSIGN_OR_RETURN(v1::CreateJobResponse response,
                            client.Call(client.jobs(), &v1::JobService::Stub::CreateJob, request));
  for (const std::string& warning : response.job().warnings()) {
    PrintTalk(absl::StrCat("warning: ", Printable(warning), "\n"));
  }
  return std::move(*response.mutable_job());
}

ExitCode FailToLoad(const Context& context, const absl::Status& status) {
  const ExitCode code = context.Fail(status);
  // A file that is not there is a mistake on the command line, not a missing job.
  return ReasonOf(status) == reason::kIoError ? ExitCode::kUsage : code;
}

}  // namespace penstock::client
