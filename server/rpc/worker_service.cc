#include "server/rpc/worker_service.h"

#include "server/rpc/unary_call.h"

namespace penstock::server {

grpc::ServerUnaryReactor* WorkerServiceImpl::Attach(grpc::CallbackServerContext* context,
                                                    const internal::AttachRequest* request,
                                                    internal::AttachResponse* response) {
  return Answer<internal::AttachResponse>(
      context, response, absl::OkStatus(), services_.control,
      [this, request] { return services_.reports.Attach(*request); });
}

grpc::ServerUnaryReactor* WorkerServiceImpl::Report(grpc::CallbackServerContext* context,
                                                    const internal::ReportRequest* request,
                                                    internal::ReportResponse* response) {
  return Answer<internal::ReportResponse>(
      context, response, absl::OkStatus(), services_.control,
      [this, request] { return services_.reports.Report(*request); });
}

}  // namespace penstock::server
