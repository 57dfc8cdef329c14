#include "server/rpc/data_build_reactor.h"

#include <chrono>
#include <utility>

#include "server/rpc/grpc_status.h"
#include "server/rpc/right.h"

namespace penstock::server {
namespace {

constexpr double kLeastStep = 0.001;

}  // namespace

bool DataBuildReactor::Abandoned() const {
  return abandoned_ || !CheckRight(call_.get()).ok() || context_->IsCancelled() ||
         context_->deadline() <= std::chrono::system_clock::now();
}

bool DataBuildReactor::Report(double fraction) {
  if (Abandoned()) return false;
  if (fraction < reported_ + kLeastStep) return true;
  {
    std::lock_guard lock(mutex_);
    if (phase_ != Phase::kIdle) return true;
    phase_ = Phase::kWriting;
  }
  reported_ = fraction;
  message_.set_fraction(fraction);
  StartWrite(&message_);
  return true;
}

void DataBuildReactor::End(absl::StatusOr<v1::InspectDataResponse> result) {
  {
    std::lock_guard lock(mutex_);
    result_ = std::move(result);
    if (phase_ != Phase::kIdle) return;  // OnWriteDone() goes on
    phase_ = Phase::kFinished;
  }
  FinishWithResult();
}

void DataBuildReactor::OnWriteDone(bool ok) {
  if (!ok) abandoned_ = true;
  {
    std::lock_guard lock(mutex_);
    if (phase_ == Phase::kFinished) return;  // that was the result
    phase_ = result_ ? Phase::kFinished : Phase::kIdle;
    if (phase_ == Phase::kIdle) return;
  }
  FinishWithResult();
}

// Nobody else touches result_ in kFinished.
void DataBuildReactor::FinishWithResult() {
  if (!result_->ok()) {
    Finish(ToGrpcStatus(result_->status()));
    return;
  }
  *message_.mutable_result() = **std::move(result_);
  StartWriteAndFinish(&message_, grpc::WriteOptions(), grpc::Status::OK);
}

}  // namespace penstock::server
