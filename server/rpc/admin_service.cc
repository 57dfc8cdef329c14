#include "server/rpc/admin_service.h"

#include "server/rpc/unary_call.h"

namespace penstock::server {

grpc::ServerUnaryReactor* AdminServiceImpl::GetServerInfo(
    grpc::CallbackServerContext* context, const v1::GetServerInfoRequest* /*request*/,
    v1::GetServerInfoResponse* response) {
  return Answer<v1::GetServerInfoResponse>(context, response, absl::OkStatus(), services_.control,
                                           [this] {
                                             v1::GetServerInfoResponse info = services_.server_info;
                                             services_.manager.Describe(info);
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

}  // namespace penstock::server
