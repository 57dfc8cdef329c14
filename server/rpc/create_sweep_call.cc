#include "server/rpc/create_sweep_call.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/jobs/request_checks.h"
#include "server/jobs/sweep_points.h"

namespace penstock::server {
namespace {

absl::StatusOr<int64_t> CheckForm(const v1::CreateSweepRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  if (!request.sweep_id().empty()) {
    PENSTOCK_RETURN_IF_ERROR(CheckSweepId(request.sweep_id(), "sweep_id"));
  }
  return CountSweepJobs(request.spec());
}

class CreateSweepCall : public std::enable_shared_from_this<CreateSweepCall> {
 public:
  CreateSweepCall(ServiceContext& services, const UnaryCall<v1::CreateSweepResponse>& call,
                  const v1::CreateSweepRequest* request)
      : services_(services), call_(call), request_(request) {}

  void Begin(int64_t jobs) {
    services_.control.Post([self = shared_from_this(), jobs] {
      if (self->call_.FinishedIfAbandoned()) return;
      auto begun = self->services_.sweeps.Begin(*self->request_, jobs);
      if (!begun.ok()) {
        self->call_.Finish(begun.status());
      } else if (begun->has_value()) {
        self->call_.Finish(**std::move(begun));
      } else {
        self->services_.validation.Post([self] { self->Expand(); });
      }
    });
  }

 private:
  void Expand() {
    if (call_.FinishedIfAbandoned()) return;
    auto jobs = ExpandSweep(request_->spec());
    if (!jobs.ok()) return call_.Finish(jobs.status());
    jobs_ = *std::move(jobs);
    PlanNext();
  }

  void PlanNext() {
    if (call_.FinishedIfAbandoned()) return;
    SweepJobSpec& job = jobs_[planned_.size()];
    v1::PlanJobRequest question;
    *question.mutable_spec() = std::move(job.spec);
    absl::StatusOr<v1::PlanJobResponse> planned = services_.planner(question, PlanUse::kRun);
    if (!planned.ok()) {
      return call_.Finish(Annotate(planned.status(), absl::StrCat("job ", job.point.number(), " (",
                                                                  PointText(job.point), ")")));
    }
    planned_.push_back({.point = std::move(job.point), .planned = *std::move(planned)});
    if (planned_.size() < jobs_.size()) {
      services_.validation.Post([self = shared_from_this()] { self->PlanNext(); });
    } else {
      services_.control.Post([self = shared_from_this()] { self->Create(); });
    }
  }

  void Create() {
    if (call_.FinishedIfAbandoned()) return;
    call_.Finish(services_.sweeps.Finish(*request_, std::move(planned_)));
  }

  ServiceContext& services_;
  const UnaryCall<v1::CreateSweepResponse> call_;
  const v1::CreateSweepRequest* const request_;
  // Handed from queue to queue with the call.
  std::vector<SweepJobSpec> jobs_;
  std::vector<PlannedSweepJob> planned_;
};

}  // namespace

void BeginCreateSweep(ServiceContext& services, const UnaryCall<v1::CreateSweepResponse>& call,
                      const v1::CreateSweepRequest* request) {
  const absl::StatusOr<int64_t> jobs = CheckForm(*request);
  if (!jobs.ok()) return call.Finish(jobs.status());
  std::make_shared<CreateSweepCall>(services, call, request)->Begin(*jobs);
}

}  // namespace penstock::server
