#include "server/rpc/admin_service.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/rpc/unary_call.h"

namespace penstock::server {

grpc::ServerUnaryReactor* AdminServiceImpl::GetServerInfo(
    grpc::CallbackServerContext* context, const v1::GetServerInfoRequest* /*request*/,
    v1::GetServerInfoResponse* response) {
  return Answer<v1::GetServerInfoResponse>(context, response, absl::OkStatus(), services_.control,
                                           [this] {
                                             v1::GetServerInfoResponse info = services_.server_info;
                                             services_.manager.Describe(info);
                                             if (const auto call = CurrentCall()) {
                                               *info.mutable_caller() = call->identity.caller;
                                             }
                                             return info;
                                           });
}

grpc::ServerUnaryReactor* AdminServiceImpl::ListDevices(grpc::CallbackServerContext* context,
                                                        const v1::ListDevicesRequest* /*request*/,
                                                        v1::ListDevicesResponse* response) {
  return Answer<v1::ListDevicesResponse>(context, response, absl::OkStatus(), services_.control,
                                         [this] { return services_.manager.ListDevices(); });
}

grpc::ServerUnaryReactor* AdminServiceImpl::ReleaseDevice(grpc::CallbackServerContext* context,
                                                          const v1::ReleaseDeviceRequest* request,
                                                          v1::ReleaseDeviceResponse* response) {
  return Answer<v1::ReleaseDeviceResponse>(
      context, response, absl::OkStatus(), services_.control,
      [this, request] { return services_.manager.ReleaseDevice(*request); });
}

namespace {

// The device of this id; empty: the first healthy GPU, or the CPU.
absl::StatusOr<v1::Device> DeviceToMeasure(const DeviceRegistry& devices, const std::string& id) {
  std::string known;
  std::optional<v1::Device> cpu, gpu;
  for (const v1::Device& device : devices.List()) {
    if (!id.empty() && device.id() == id) return device;
    absl::StrAppend(&known, known.empty() ? "" : ", ", device.id());
    const bool healthy = device.health() == v1::DEVICE_HEALTH_HEALTHY;
    if (device.kind() == v1::DEVICE_KIND_CPU) cpu = device;
    if (device.kind() == v1::DEVICE_KIND_CUDA && healthy && !gpu) gpu = device;
  }
  if (id.empty() && gpu) return *gpu;
  if (id.empty() && cpu) return *cpu;
  return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
               absl::StrCat("id: found \"", id, "\", expected a device of this daemon: ", known),
               {{"field", "id"}, {"found", id}});
}

}  // namespace

// control (is anything running?) -> calibration (measure) -> control (jobs start again)
grpc::ServerUnaryReactor* AdminServiceImpl::CalibrateDevice(
    grpc::CallbackServerContext* context, const v1::CalibrateDeviceRequest* request,
    v1::CalibrateDeviceResponse* response) {
  const UnaryCall<v1::CalibrateDeviceResponse> call(context, response);
  services_.control.Post([this, call, request] {
    if (call.FinishedIfAbandoned()) return;
    const absl::StatusOr<v1::Device> device = DeviceToMeasure(services_.devices, request->id());
    if (!device.ok()) return call.Finish(device.status());
    if (absl::Status begun = services_.workers.HoldBack(); !begun.ok()) return call.Finish(begun);
    if (absl::Status entered = services_.admin.EnterCall(); !entered.ok()) {
      services_.workers.Release();
      return call.Finish(entered);
    }
    services_.calibration.Post([this, call, device = *device] {
      absl::StatusOr<v1::MachineProfile> profile = services_.calibrator.Measure(device);
      services_.control.Post([this] { services_.workers.Release(); });
      if (!profile.ok()) return call.Finish(profile.status());
      v1::CalibrateDeviceResponse measured;
      *measured.mutable_profile() = *std::move(profile);
      call.Finish(std::move(measured));
    });
  });
  return call.reactor();
}

grpc::ServerUnaryReactor* AdminServiceImpl::DrainServer(grpc::CallbackServerContext* context,
                                                        const v1::DrainServerRequest* request,
                                                        v1::DrainServerResponse* response) {
  return Answer<v1::DrainServerResponse>(
      context, response, absl::OkStatus(), services_.control,
      [this, request] { return services_.admin.DrainServer(*request); });
}

grpc::ServerUnaryReactor* AdminServiceImpl::CreateToken(grpc::CallbackServerContext* context,
                                                        const v1::CreateTokenRequest* request,
                                                        v1::CreateTokenResponse* response) {
  return Answer<v1::CreateTokenResponse>(
      context, response, absl::OkStatus(), services_.control,
      [this, request] { return services_.admin.CreateToken(*request); });
}

grpc::ServerUnaryReactor* AdminServiceImpl::ListTokens(grpc::CallbackServerContext* context,
                                                       const v1::ListTokensRequest* request,
                                                       v1::ListTokensResponse* response) {
  return Answer<v1::ListTokensResponse>(
      context, response, absl::OkStatus(), services_.control,
      [this, request] { return services_.admin.ListTokens(*request); });
}

grpc::ServerUnaryReactor* AdminServiceImpl::ListAuditEntries(
    grpc::CallbackServerContext* context, const v1::ListAuditEntriesRequest* request,
    v1::ListAuditEntriesResponse* response) {
  return Answer<v1::ListAuditEntriesResponse>(
      context, response, absl::OkStatus(), services_.control,
      [this, request] { return services_.admin.ListAuditEntries(*request); });
}

grpc::ServerUnaryReactor* AdminServiceImpl::RevokeToken(grpc::CallbackServerContext* context,
                                                        const v1::RevokeTokenRequest* request,
                                                        v1::RevokeTokenResponse* response) {
  return Answer<v1::RevokeTokenResponse>(context, response, absl::OkStatus(), services_.control,
                                         [this, request] {
                                           auto revoked = services_.admin.RevokeToken(*request);
                                           services_.watches.EndWithoutRight();
                                           return revoked;
                                         });
}

}  // namespace penstock::server
