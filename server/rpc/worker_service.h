// penstock.internal.WorkerService, served on the workers' own socket.
#pragma once

#include "penstock/internal/worker.grpc.pb.h"
#include "server/rpc/services.h"

namespace penstock::server {

class WorkerServiceImpl : public internal::WorkerService::CallbackService {
 public:
  explicit WorkerServiceImpl(ServiceContext& services) : services_(services) {}

  grpc::ServerUnaryReactor* Attach(grpc::CallbackServerContext* context,
                                   const internal::AttachRequest* request,
                                   internal::AttachResponse* response) override;
  grpc::ServerUnaryReactor* Report(grpc::CallbackServerContext* context,
                                   const internal::ReportRequest* request,
                                   internal::ReportResponse* response) override;

 private:
  ServiceContext& services_;
};

}  // namespace penstock::server
