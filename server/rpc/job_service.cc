#include "server/rpc/job_service.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/jobs/metric_store.h"
#include "server/jobs/request_checks.h"
#include "server/rpc/create_sweep_call.h"
#include "server/rpc/data_build_reactor.h"
#include "server/rpc/trace_reactor.h"
#include "server/rpc/unary_call.h"

namespace penstock::server {
namespace {

constexpr int32_t kDefaultPoints = 1000;
constexpr int32_t kMaxPoints = 10'000;
constexpr int32_t kMaxExamples = 20;

absl::Status CheckCreate(const v1::CreateJobRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  return request.job_id().empty() ? absl::OkStatus() : CheckJobId(request.job_id(), "job_id");
}

absl::Status CheckNamed(const std::string& name, const std::string& request_id) {
  PENSTOCK_RETURN_IF_ERROR(CheckRequestId(request_id));
  return CheckJobName(name, "name");
}

absl::Status NotNegative(const std::string& field, int64_t value) {
  if (value >= 0) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
               absl::StrCat(field, " is ", value, "; expected 0 or more"),
               {{"field", field}, {"found", absl::StrCat(value)}, {"expected", "0 or more"}});
}

absl::Status CheckInspect(const v1::InspectDataRequest& request) {
  if (request.examples() >= 0 && request.examples() <= kMaxExamples) return absl::OkStatus();
  const std::string expected = absl::StrCat("0 to ", kMaxExamples);
  return Error(
      absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
      absl::StrCat("examples is ", request.examples(), "; expected ", expected),
      {{"field", "examples"}, {"found", absl::StrCat(request.examples())}, {"expected", expected}});
}

absl::Status CheckMetrics(const v1::ListJobMetricsRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(CheckJobName(request.name(), "name"));
  PENSTOCK_RETURN_IF_ERROR(NotNegative("first_step", request.first_step()));
  PENSTOCK_RETURN_IF_ERROR(NotNegative("last_step", request.last_step()));
  return NotNegative("max_points", request.max_points());
}

absl::StatusOr<v1::ListJobMetricsResponse> ReadMetrics(const StateDirectory& directory,
                                                       const v1::ListJobMetricsRequest& request) {
  const int32_t points = request.max_points() == 0 ? kDefaultPoints : request.max_points();
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<v1::StepMetrics> found,
                            ReadMetricRange(directory.Metrics(request.name()),
                                            {.first_step = request.first_step(),
                                             .last_step = request.last_step(),
                                             .max_points = std::min(points, kMaxPoints)}));
  v1::ListJobMetricsResponse response;
  for (v1::StepMetrics& point : found) *response.add_points() = std::move(point);
  return response;
}

// control (has this call been made before?) -> validation (can it run?) -> control (create)
class CreateCall {
 public:
  CreateCall(ServiceContext& services, UnaryCall<v1::CreateJobResponse> call,
             const v1::CreateJobRequest* request)
      : services_(services), call_(call), request_(request) {}

  void Begin() const {
    services_.control.Post([self = *this] {
      if (self.call_.FinishedIfAbandoned()) return;
      auto begun = self.services_.manager.BeginCreate(*self.request_);
      if (!begun.ok()) {
        self.call_.Finish(begun.status());
      } else if (begun->has_value()) {
        self.call_.Finish(**std::move(begun));
      } else {
        self.Plan();
      }
    });
  }

 private:
  void Plan() const {
    services_.validation.Post([self = *this] {
      if (self.call_.FinishedIfAbandoned()) return;
      v1::PlanJobRequest question;
      *question.mutable_spec() = self.request_->spec();
      absl::StatusOr<v1::PlanJobResponse> planned = self.services_.planner(question, PlanUse::kRun);
      if (planned.ok()) {
        self.Create(*std::move(planned));
      } else {
        self.call_.Finish(planned.status());
      }
    });
  }

  void Create(v1::PlanJobResponse planned) const {
    services_.control.Post([self = *this, planned = std::move(planned)]() mutable {
      if (self.call_.FinishedIfAbandoned()) return;
      self.call_.Finish(self.services_.manager.FinishCreate(*self.request_, std::move(planned)));
    });
  }

  ServiceContext& services_;
  UnaryCall<v1::CreateJobResponse> call_;
  const v1::CreateJobRequest* request_;
};

}  // namespace

grpc::ServerUnaryReactor* JobServiceImpl::CreateJob(grpc::CallbackServerContext* context,
                                                    const v1::CreateJobRequest* request,
                                                    v1::CreateJobResponse* response) {
  const UnaryCall<v1::CreateJobResponse> call(context, response);
  if (absl::Status form = CheckCreate(*request); !form.ok()) {
    call.Finish(form);
  } else {
    CreateCall(services_, call, request).Begin();
  }
  return call.reactor();
}

// validation (can it run?) -> control (the daemon's own limits)
grpc::ServerUnaryReactor* JobServiceImpl::PlanJob(grpc::CallbackServerContext* context,
                                                  const v1::PlanJobRequest* request,
                                                  v1::PlanJobResponse* response) {
  const UnaryCall<v1::PlanJobResponse> call(context, response);
  services_.validation.Post([this, call, request] {
    if (call.FinishedIfAbandoned()) return;
    absl::StatusOr<v1::PlanJobResponse> planned = services_.planner(*request, PlanUse::kAdvise);
    if (!planned.ok()) return call.Finish(planned.status());
    services_.control.Post([this, call, request, planned = *std::move(planned)]() mutable {
      if (call.FinishedIfAbandoned()) return;
      call.Finish(services_.manager.FinishPlan(*request, std::move(planned)));
    });
  });
  return call.reactor();
}

grpc::ServerUnaryReactor* JobServiceImpl::InspectData(grpc::CallbackServerContext* context,
                                                      const v1::InspectDataRequest* request,
                                                      v1::InspectDataResponse* response) {
  const UnaryCall<v1::InspectDataResponse> call(context, response);
  if (absl::Status form = CheckInspect(*request); !form.ok()) {
    call.Finish(form);
    return call.reactor();
  }
  services_.inspection.Post([this, call, request] {
    if (call.FinishedIfAbandoned()) return;
    call.Finish(services_.inspector(*request, services_.directory.TokenCache(),
                                    [&call](double) { return !call.Abandoned(); }));
  });
  return call.reactor();
}

grpc::ServerWriteReactor<v1::BuildDataResponse>* JobServiceImpl::BuildData(
    grpc::CallbackServerContext* context, const v1::BuildDataRequest* request) {
  auto* const reactor = new DataBuildReactor(context);
  services_.inspection.Post([this, reactor, request] {
    v1::InspectDataRequest inspection;
    *inspection.mutable_spec() = request->spec();
    reactor->End(
        services_.inspector(inspection, services_.directory.TokenCache(),
                            [reactor](double fraction) { return reactor->Report(fraction); }));
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::GetJob(grpc::CallbackServerContext* context,
                                                 const v1::GetJobRequest* request,
                                                 v1::GetJobResponse* response) {
  const UnaryCall<v1::GetJobResponse> call(context, response);
  const absl::Status form = CheckJobName(request->name(), "name");
  call.Finish(form.ok() ? services_.manager.Get(*request) : form);
  return call.reactor();
}

grpc::ServerUnaryReactor* JobServiceImpl::ListJobs(grpc::CallbackServerContext* context,
                                                   const v1::ListJobsRequest* request,
                                                   v1::ListJobsResponse* response) {
  absl::Status status =
      request->sweep().empty() ? absl::OkStatus() : CheckSweepName(request->sweep(), "sweep");
  // Into the response as it is, which lies on an arena (guarded_services.h).
  if (status.ok()) status = services_.manager.List(*request, *response);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::CancelJob(grpc::CallbackServerContext* context,
                                                    const v1::CancelJobRequest* request,
                                                    v1::CancelJobResponse* response) {
  return Answer<v1::CancelJobResponse>(
      context, response, CheckNamed(request->name(), request->request_id()), services_.control,
      [this, request] { return services_.moves.Cancel(*request); });
}

grpc::ServerUnaryReactor* JobServiceImpl::PauseJob(grpc::CallbackServerContext* context,
                                                   const v1::PauseJobRequest* request,
                                                   v1::PauseJobResponse* response) {
  return Answer<v1::PauseJobResponse>(
      context, response, CheckNamed(request->name(), request->request_id()), services_.control,
      [this, request] { return services_.moves.Pause(*request); });
}

grpc::ServerUnaryReactor* JobServiceImpl::ResumeJob(grpc::CallbackServerContext* context,
                                                    const v1::ResumeJobRequest* request,
                                                    v1::ResumeJobResponse* response) {
  return Answer<v1::ResumeJobResponse>(
      context, response, CheckNamed(request->name(), request->request_id()), services_.control,
      [this, request] { return services_.moves.Resume(*request); });
}

grpc::ServerUnaryReactor* JobServiceImpl::CreateSweep(grpc::CallbackServerContext* context,
                                                      const v1::CreateSweepRequest* request,
                                                      v1::CreateSweepResponse* response) {
  const UnaryCall<v1::CreateSweepResponse> call(context, response);
  BeginCreateSweep(services_, call, request);
  return call.reactor();
}

grpc::ServerUnaryReactor* JobServiceImpl::CancelSweep(grpc::CallbackServerContext* context,
                                                      const v1::CancelSweepRequest* request,
                                                      v1::CancelSweepResponse* response) {
  absl::Status form = CheckRequestId(request->request_id());
  if (form.ok()) form = CheckSweepName(request->name(), "name");
  return Answer<v1::CancelSweepResponse>(
      context, response, form, services_.control,
      [this, request] { return services_.moves.CancelSweep(*request); });
}

grpc::ServerUnaryReactor* JobServiceImpl::DeleteJob(grpc::CallbackServerContext* context,
                                                    const v1::DeleteJobRequest* request,
                                                    v1::DeleteJobResponse* response) {
  return Answer<v1::DeleteJobResponse>(
      context, response, CheckNamed(request->name(), request->request_id()), services_.control,
      [this, request] {
        auto deleted = services_.moves.Delete(*request);
        if (deleted.ok()) {
          services_.validation.Post([&directory = services_.directory] { directory.EmptyTrash(); });
        }
        return deleted;
      });
}

grpc::ServerWriteReactor<v1::WatchJobsResponse>* JobServiceImpl::WatchJobs(
    grpc::CallbackServerContext* /*context*/, const v1::WatchJobsRequest* request) {
  return services_.watches.Open(*request);
}

grpc::ServerUnaryReactor* JobServiceImpl::ListJobMetrics(grpc::CallbackServerContext* context,
                                                         const v1::ListJobMetricsRequest* request,
                                                         v1::ListJobMetricsResponse* response) {
  const UnaryCall<v1::ListJobMetricsResponse> call(context, response);
  if (absl::Status form = CheckMetrics(*request); !form.ok()) {
    call.Finish(form);
    return call.reactor();
  }
  v1::GetJobRequest get;
  get.set_name(request->name());
  if (const auto job = services_.manager.Get(get); !job.ok()) {
    call.Finish(job.status());
    return call.reactor();
  }
  services_.streams.Post([this, call, request] {
    if (!call.FinishedIfAbandoned()) call.Finish(ReadMetrics(services_.directory, *request));
  });
  return call.reactor();
}

grpc::ServerWriteReactor<v1::TraceJobResponse>* JobServiceImpl::TraceJob(
    grpc::CallbackServerContext* /*context*/, const v1::TraceJobRequest* request) {
  const auto reactor = std::make_shared<TraceReactor>(services_, request->name());
  reactor->Begin();
  return reactor.get();
}

}  // namespace penstock::server
