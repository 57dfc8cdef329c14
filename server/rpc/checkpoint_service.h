// penstock.v1.CheckpointService.
#pragma once

#include "penstock/v1/checkpoint_service.grpc.pb.h"
#include "server/rpc/services.h"

namespace penstock::server {

class CheckpointServiceImpl : public v1::CheckpointService::CallbackService {
 public:
  explicit CheckpointServiceImpl(ServiceContext& services) : services_(services) {}

  grpc::ServerUnaryReactor* ListCheckpoints(grpc::CallbackServerContext* context,
                                            const v1::ListCheckpointsRequest* request,
                                            v1::ListCheckpointsResponse* response) override;
  grpc::ServerUnaryReactor* GetCheckpoint(grpc::CallbackServerContext* context,
                                          const v1::GetCheckpointRequest* request,
                                          v1::GetCheckpointResponse* response) override;
  grpc::ServerUnaryReactor* SaveCheckpoint(grpc::CallbackServerContext* context,
                                           const v1::SaveCheckpointRequest* request,
                                           v1::SaveCheckpointResponse* response) override;
  grpc::ServerUnaryReactor* PinCheckpoint(grpc::CallbackServerContext* context,
                                          const v1::PinCheckpointRequest* request,
                                          v1::PinCheckpointResponse* response) override;
  grpc::ServerUnaryReactor* DeleteCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::DeleteCheckpointRequest* request,
                                             v1::DeleteCheckpointResponse* response) override;
  grpc::ServerUnaryReactor* ExportCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::ExportCheckpointRequest* request,
                                             v1::ExportCheckpointResponse* response) override;

 private:
  ServiceContext& services_;
};

}  // namespace penstock::server
