#include "tests/load/clients.h"

#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "google/protobuf/arena.h"
#include "tests/load/filled_store.h"

namespace penstock::load {
namespace {

constexpr absl::Duration kAttempt = absl::Seconds(10);
constexpr absl::Duration kGiveUp = absl::Minutes(2);
constexpr size_t kMaxRecent = 1000;

bool MayBeRepeated(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
         status.error_code() == grpc::StatusCode::CANCELLED;
}

constexpr double kCallsInRound = 8;

}  // namespace

void RecentJobs::Add(const std::string& name) {
  std::lock_guard lock(mutex_);
  names_.push_back(name);
  if (names_.size() > kMaxRecent) names_.pop_front();
}

std::optional<std::string> RecentJobs::Take() {
  std::lock_guard lock(mutex_);
  if (names_.empty()) return std::nullopt;
  std::string name = std::move(names_.back());
  names_.pop_back();
  return name;
}

class Clients::Client {
 public:
  Client(Clients& all, int64_t index)
      : all_(all),
        random_(static_cast<uint64_t>(index)),
        jobs_(v1::JobService::NewStub(all.daemon_.Connect())),
        label_(absl::StrCat("load ", index)) {
    const double rate = all.args_.calls_per_second;
    if (rate > 0) pause_ = absl::Seconds(static_cast<double>(all.args_.clients) / rate);
    // Anywhere in a round: each kind of call then comes evenly, not a burst of all clients' submits
    // in the time of one call and none until the next round.
    next_ =
        absl::Now() + pause_ * std::uniform_real_distribution<double>(0, kCallsInRound)(random_);
  }

  // Submits a job, looks around and cancels it: kCallsInRound calls.
  void Round() {
    Submission submission;
    v1::CreateJobRequest& create = submission.request;
    *create.mutable_spec() = all_.args_.spec;
    create.set_request_id(absl::StrCat(label_, " job ", ++rounds_));
    create.mutable_spec()->set_display_name(create.request_id());
    if (random_() % 20 == 0) {
      GiveUp(create);
    } else {
      Submit(submission);
      LookAround(submission.name);
      Cancel(submission);
    }
    std::lock_guard lock(all_.mutex_);
    all_.submissions_.push_back(std::move(submission));
  }

 private:
  // Until it is answered with something that a repetition would not change.
  template <typename Request, typename Response>
  bool Call(Method method,
            grpc::Status (v1::JobService::Stub::*call)(grpc::ClientContext*, const Request&,
                                                       Response*),
            const Request& request, Response& response) {
    if (next_ > absl::Now()) absl::SleepFor(next_ - absl::Now());
    next_ = std::max(next_ + pause_, absl::Now());
    const absl::Time begin = absl::Now();
    grpc::Status status;
    while (absl::Now() - begin < kGiveUp) {
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      context.set_deadline(absl::ToChronoTime(absl::Now() + kAttempt));
      status = ((*jobs_).*call)(&context, request, &response);
      if (status.ok()) {
        all_.findings_.AddTime(method, absl::ToDoubleMilliseconds(absl::Now() - begin));
        return true;
      }
      if (!MayBeRepeated(status)) break;
      absl::SleepFor(absl::Milliseconds(20));
    }
    all_.findings_.Add(absl::StrCat(kMethodNames[static_cast<size_t>(method)], ": ",
                                    status.error_message(), " (", request.ShortDebugString(), ")"));
    return false;
  }

  void GiveUp(const v1::CreateJobRequest& create) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(5));
    v1::CreateJobResponse ignored;
    jobs_->CreateJob(&context, create, &ignored);
  }

  void Submit(Submission& submission) {
    v1::CreateJobResponse created;
    if (!Call(Method::kSubmit, &v1::JobService::Stub::CreateJob, submission.request, created)) {
      return;
    }
    submission.name = created.job().name();
    all_.recent_.Add(submission.name);
  }

  void Get(const std::string& name) {
    v1::GetJobRequest request;
    request.set_name(name);
    v1::GetJobResponse response;
    if (Call(Method::kGet, &v1::JobService::Stub::GetJob, request, response) &&
        response.job().name() != name) {
      all_.findings_.Add(absl::StrCat("GetJob of ", name, " gave ", response.job().name()));
    }
  }

  void LookAround(const std::string& mine) {
    Get(mine);
    v1::ListJobsRequest list;
    // On an arena: what is measured is the daemon, and here as well a page is many messages.
    google::protobuf::Arena arena;
    auto& listed = *google::protobuf::Arena::CreateMessage<v1::ListJobsResponse>(&arena);
    Call(Method::kList, &v1::JobService::Stub::ListJobs, list, listed);
    Get(StoredName(static_cast<int64_t>(random_() % all_.args_.stored_jobs)));
    list.set_page_token(listed.next_page_token());
    listed.Clear();
    Call(Method::kList, &v1::JobService::Stub::ListJobs, list, listed);
    Get(all_.args_.running_job);
    list.clear_page_token();
    list.add_states(v1::JOB_STATE_RUNNING);
    list.add_states(v1::JOB_STATE_QUEUED);
    listed.Clear();
    Call(Method::kList, &v1::JobService::Stub::ListJobs, list, listed);
    for (const v1::Job& job : listed.jobs()) {
      if (job.state() == v1::JOB_STATE_QUEUED || job.state() == v1::JOB_STATE_RUNNING) continue;
      all_.findings_.Add(absl::StrCat("ListJobs of waiting jobs gave ", job.name(), " in state ",
                                      v1::JobState_Name(job.state())));
    }
  }

  void Cancel(Submission& submission) {
    if (submission.name.empty()) return;
    v1::CancelJobRequest request;
    request.set_name(submission.name);
    request.set_request_id(submission.request.request_id());
    v1::CancelJobResponse response;
    submission.cancelled =
        Call(Method::kCancel, &v1::JobService::Stub::CancelJob, request, response);
  }

  Clients& all_;
  std::mt19937_64 random_;
  const std::unique_ptr<v1::JobService::Stub> jobs_;
  const std::string label_;
  int64_t rounds_ = 0;
  absl::Duration pause_;
  absl::Time next_;
};

Clients::Clients(ClientArgs args, const DaemonProcess& daemon, RecentJobs& recent,
                 Findings& findings)
    : args_(std::move(args)), daemon_(daemon), recent_(recent), findings_(findings) {
  for (int64_t i = 0; i < args_.clients; ++i) {
    threads_.emplace_back([this, i] { Run(i); });
  }
}

void Clients::Run(int64_t index) {
  Client client(*this, index);
  while (!stopping_) client.Round();
}

Clients::~Clients() { Stop(); }

void Clients::Stop() {
  stopping_ = true;
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

namespace {

using JobsByDisplayName = std::multimap<std::string, v1::Job>;

JobsByDisplayName ListAll(v1::JobService::Stub& stub, Findings& findings) {
  JobsByDisplayName jobs;
  v1::ListJobsRequest request;
  request.set_page_size(1000);
  do {
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    if (const grpc::Status status = stub.ListJobs(&context, request, &response); !status.ok()) {
      findings.Add("ListJobs at the end: " + status.error_message());
      return jobs;
    }
    for (const v1::Job& job : response.jobs()) {
      if (job.name().rfind("jobs/stored-", 0) == 0) continue;
      jobs.emplace(job.train().display_name(), job);
    }
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return jobs;
}

void CheckSubmission(const Submission& submission, const JobsByDisplayName& jobs,
                     v1::JobService::Stub& stub, Findings& findings) {
  const std::string& id = submission.request.request_id();
  const auto [first, last] = jobs.equal_range(id);
  const auto found = std::distance(first, last);
  if (submission.name.empty()) {
    if (found > 1)
      findings.Add(absl::StrCat("\"", id, "\" was given up and is there ", found, " times"));
    return;
  }
  if (found != 1 || first->second.name() != submission.name) {
    findings.Add(absl::StrCat("\"", id, "\" was answered with ", submission.name, " and is there ",
                              found, " times"));
    return;
  }
  const v1::JobState state = first->second.state();
  if (submission.cancelled && state != v1::JOB_STATE_CANCELLED &&
      state != v1::JOB_STATE_CANCELLING) {
    findings.Add(absl::StrCat(submission.name, " was cancelled and is ", v1::JobState_Name(state)));
  }
  grpc::ClientContext context;
  v1::CreateJobResponse again;
  const grpc::Status status = stub.CreateJob(&context, submission.request, &again);
  if (!status.ok() || again.job().name() != submission.name) {
    findings.Add(absl::StrCat("\"", id, "\" was answered with ", submission.name, ", now with ",
                              again.job().name(), " ", status.error_message()));
  }
}

}  // namespace

void CheckSubmissions(const std::vector<Submission>& submissions, const DaemonProcess& daemon,
                      Findings& findings) {
  const auto stub = v1::JobService::NewStub(daemon.Connect());
  const JobsByDisplayName jobs = ListAll(*stub, findings);
  for (const Submission& submission : submissions) {
    CheckSubmission(submission, jobs, *stub, findings);
  }
}

}  // namespace penstock::load
