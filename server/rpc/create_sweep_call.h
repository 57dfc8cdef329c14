// A CreateSweep call on its way: control (has this call been made before?) -> validation (the grid,
// then a turn for each job's plan, so that other calls get theirs) -> control (create).
#pragma once

#include "penstock/v1/job.pb.h"
#include "server/rpc/services.h"
#include "server/rpc/unary_call.h"

namespace penstock::server {

// The request outlives the call.
void BeginCreateSweep(ServiceContext& services, const UnaryCall<v1::CreateSweepResponse>& call,
                      const v1::CreateSweepRequest* request);

}  // namespace penstock::server
