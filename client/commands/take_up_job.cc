#include "client/commands/take_up_job.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/commands/submit_job.h"
#include "client/job_text.h"
#include "engine/base/status.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "xxhash.h"

namespace penstock::client {
namespace {

// The same for the same job file, so that the job is found again.
std::string JobIdOf(const v1::JobSpec& spec) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    // Maps would else come in a different order each time.
    coded.SetSerializationDeterministic(true);
    spec.SerializeToCodedStream(&coded);
  }
  return absl::StrCat("run-", absl::Hex(XXH3_64bits(bytes.data(), bytes.size()), absl::kZeroPad16));
}

absl::Status CheckNoOther(RpcClient& client) {
  v1::ListJobsRequest request;
  request.set_page_size(1);
  for (int state = 1; state < v1::JobState_ARRAYSIZE; ++state) {
    v1::Job job;
    job.set_state(static_cast<v1::JobState>(state));
    if (!HasEnded(job)) request.add_states(job.state());
  }
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ListJobsResponse unfinished,
                            client.Call(client.jobs(), &v1::JobService::Stub::ListJobs, request));
  if (unfinished.jobs().empty()) return absl::OkStatus();
  const std::string& name = unfinished.jobs(0).name();
  return Error(
      absl::StatusCode::kFailedPrecondition, reason::kJobStateConflict,
      absl::StrCat("the state directory has ", name, ", ", StateName(unfinished.jobs(0).state()),
                   ", of another job file; run that file to its end first, or choose "
                   "another --state-dir"),
      {{"job", name}});
}

absl::StatusOr<v1::Job> Resume(RpcClient& client, const std::string& name) {
  v1::ResumeJobRequest request;
  request.set_name(name);
  request.set_request_id(NewRequestId());
  PENSTOCK_ASSIGN_OR_RETURN(v1::ResumeJobResponse response,
                            client.Call(client.jobs(), &v1::JobService::Stub::ResumeJob, request));
  return std::move(*response.mutable_job());
}

// Nothing if it has to be made anew.
absl::StatusOr<std::optional<v1::Job>> TakeUp(RpcClient& client, const std::string& name) {
  absl::StatusOr<v1::Job> job = client.GetJob(name);
  if (ReasonOf(job.status()) == reason::kJobNotFound) {
    PENSTOCK_RETURN_IF_ERROR(CheckNoOther(client));
    return std::nullopt;
  }
  if (!job.ok() || job->state() == v1::JOB_STATE_SUCCEEDED) return job;
  PrintTalk(absl::StrCat("taking up ", Printable(StateText(*job)), "\n"));
  if (!HasEnded(*job) && job->state() != v1::JOB_STATE_PAUSED) return job;
  job = Resume(client, name);
  if (ReasonOf(job.status()) != reason::kCheckpointNotFound) return job;
  v1::DeleteJobRequest remove;
  remove.set_name(name);
  remove.set_request_id(NewRequestId());
  PENSTOCK_RETURN_IF_ERROR(
      client.Call(client.jobs(), &v1::JobService::Stub::DeleteJob, remove).status());
  return std::nullopt;
}

}  // namespace

absl::StatusOr<v1::Job> TakeUpJob(const Context& context, RpcClient& client,
                                  const v1::JobSpec& spec) {
  const std::string id = JobIdOf(spec);
  absl::StatusOr<std::optional<v1::Job>> taken = TakeUp(client, JobName(id));
  if (!taken.ok()) {
    context.Fail(taken.status());
    return taken.status();
  }
  if (*taken) return **std::move(taken);
  v1::CreateJobRequest request;
  *request.mutable_spec() = spec;
  request.set_job_id(id);
  absl::StatusOr<v1::Job> job = CreateJob(client, request);
  if (!job.ok()) context.Fail(job.status(), request.request_id());
  return job;
}

}  // namespace penstock::client
