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
  grpc::ServerUnaryReactor* DrainServer(grpc::CallbackServerContext* context,
                                        const v1::DrainServerRequest* request,
                                        v1::DrainServerResponse* response) override;
  grpc::ServerUnaryReactor* CreateToken(grpc::CallbackServerContext* context,
                                        const v1::CreateTokenRequest* request,
                                        v1::CreateTokenResponse* response) override;
  grpc::ServerUnaryReactor* ListTokens(grpc::CallbackServerContext* context,
                                       const v1::ListTokensRequest* request,
                                       v1::ListTokensResponse* response) override;
  grpc::ServerUnaryReactor* RevokeToken(grpc::CallbackServerContext* context,
                                        const v1::RevokeTokenRequest* request,
                                        v1::RevokeTokenResponse* response) override;
  grpc::ServerUnaryReactor* ListAuditEntries(grpc::CallbackServerContext* context,
                                             const v1::ListAuditEntriesRequest* request,
                                             v1::ListAuditEntriesResponse* response) override;

 private:
  ServiceContext& services_;
};

}  // namespace penstock::server
