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
  return Answer<v1::ListDevicesResponse>(
      context, response, absl::OkStatus(), services_.control, [this] {
        v1::ListDevicesResponse list;
        for (const v1::Device& device : services_.devices) {
          *list.add_devices() = device;
          list.mutable_devices()->rbegin()->set_job(services_.manager.HolderOf(device.id()));
        }
        return list;
      });
}

}  // namespace penstock::server
