// The gate for what gRPC's own services serve beside ours: health answers to all, reflection to
// whoever may read. Ours are behind the door (guarded_services.h).
#pragma once

#include <memory>

#include "grpcpp/support/server_interceptor.h"
#include "server/rpc/door.h"

namespace penstock::server {

// For ServerBuilder. `door` has to outlive the server.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> GateForeignMethods(
    Door& door);

}  // namespace penstock::server
