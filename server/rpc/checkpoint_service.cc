#include "server/rpc/checkpoint_service.h"

#include "engine/base/status.h"
#include "server/jobs/request_checks.h"
#include "server/rpc/unary_call.h"

namespace penstock::server {
namespace {

absl::Status CheckNamed(const std::string& name, const std::string& request_id) {
  PENSTOCK_RETURN_IF_ERROR(CheckRequestId(request_id));
  return ParseCheckpointName(name, "name").status();
}

absl::Status CheckSave(const v1::SaveCheckpointRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  return CheckJobName(request.parent(), "parent");
}

absl::Status CheckExport(const v1::ExportCheckpointRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  return ParseCheckpointName(request.spec().checkpoint(), "spec.checkpoint").status();
}

}  // namespace

grpc::ServerUnaryReactor* CheckpointServiceImpl::ListCheckpoints(
    grpc::CallbackServerContext* context, const v1::ListCheckpointsRequest* request,
    v1::ListCheckpointsResponse* response) {
  return Answer<v1::ListCheckpointsResponse>(
      context, response, CheckJobName(request->parent(), "parent"), services_.control,
      [this, request] { return services_.checkpoints.List(*request); });
}

grpc::ServerUnaryReactor* CheckpointServiceImpl::GetCheckpoint(
    grpc::CallbackServerContext* context, const v1::GetCheckpointRequest* request,
    v1::GetCheckpointResponse* response) {
  return Answer<v1::GetCheckpointResponse>(
      context, response, absl::OkStatus(), services_.control,
      [this, request] { return services_.checkpoints.Get(*request); });
}

grpc::ServerUnaryReactor* CheckpointServiceImpl::SaveCheckpoint(
    grpc::CallbackServerContext* context, const v1::SaveCheckpointRequest* request,
    v1::SaveCheckpointResponse* response) {
  return Answer<v1::SaveCheckpointResponse>(
      context, response, CheckSave(*request), services_.control,
      [this, request] { return services_.checkpoints.Save(*request); });
}

grpc::ServerUnaryReactor* CheckpointServiceImpl::PinCheckpoint(
    grpc::CallbackServerContext* context, const v1::PinCheckpointRequest* request,
    v1::PinCheckpointResponse* response) {
  return Answer<v1::PinCheckpointResponse>(
      context, response, CheckNamed(request->name(), request->request_id()), services_.control,
      [this, request] { return services_.checkpoints.Pin(*request); });
}

grpc::ServerUnaryReactor* CheckpointServiceImpl::DeleteCheckpoint(
    grpc::CallbackServerContext* context, const v1::DeleteCheckpointRequest* request,
    v1::DeleteCheckpointResponse* response) {
  return Answer<v1::DeleteCheckpointResponse>(
      context, response, CheckNamed(request->name(), request->request_id()), services_.control,
      [this, request] {
        auto deleted = services_.checkpoints.Delete(*request);
        if (deleted.ok()) {
          services_.validation.Post([&directory = services_.directory] { directory.EmptyTrash(); });
        }
        return deleted;
      });
}

grpc::ServerUnaryReactor* CheckpointServiceImpl::ExportCheckpoint(
    grpc::CallbackServerContext* context, const v1::ExportCheckpointRequest* request,
    v1::ExportCheckpointResponse* response) {
  const UnaryCall<v1::ExportCheckpointResponse> call(context, response);
  if (absl::Status form = CheckExport(*request); !form.ok()) {
    call.Finish(form);
    return call.reactor();
  }
  // A repeated call must get its reply although the directory exists by now.
  services_.control.Post([this, call, request] {
    if (call.FinishedIfAbandoned()) return;
    auto replay = services_.manager.ReplayExport(*request);
    if (!replay.ok() || replay->has_value()) {
      replay.ok() ? call.Finish(**std::move(replay)) : call.Finish(replay.status());
      return;
    }
    services_.validation.Post([this, call, request] {
      if (call.FinishedIfAbandoned()) return;
      absl::StatusOr<std::string> directory =
          services_.output_checker(request->spec().directory(), "spec.directory");
      if (!directory.ok()) {
        call.Finish(directory.status());
        return;
      }
      services_.control.Post([this, call, request, directory = *std::move(directory)] {
        if (call.FinishedIfAbandoned()) return;
        call.Finish(services_.manager.Export(*request, directory));
      });
    });
  });
  return call.reactor();
}

}  // namespace penstock::server
