// penstock.v1.AdminService.
#pragma once

#include "penstock/v1/admin_service.grpc.pb.h"
#include "server/rpc/services.h"

namespace penstock::server {

class AdminServiceImpl : public v1::AdminService::CallbackService {
 public:
  explicit AdminServiceImpl(ServiceContext& services) : services_(services) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest* request,
                                          v1::GetServerInfoResponse* response) override;
  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                        const v1::ListDevicesRequest* request,
                                        v1::ListDevicesResponse* response) override;
  grpc::ServerUnaryReactor* ReleaseDevice(grpc::CallbackServerContext* context,
                                          const v1::ReleaseDeviceRequest* request,
                                          v1::ReleaseDeviceResponse* response) override;

  grpc::ServerUnaryReactor* CalibrateDevice(grpc::CallbackServerContext* context,
                                            const v1::CalibrateDeviceRequest* request,
                                            v1::CalibrateDeviceResponse* response) override;

 private:
  ServiceContext& services_;
};

}  // namespace penstock::server
