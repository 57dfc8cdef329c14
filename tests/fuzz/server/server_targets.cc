// The targets of penstock_fuzz_server: what clients send.
#include "tests/fuzz/server/server_targets.h"

namespace penstock::fuzz {

const std::vector<TargetFactory>& Targets() {
  static const auto* const targets = new std::vector<TargetFactory>{
      {"job_file", MakeJobFileTarget}, {"job_spec", MakeJobSpecTarget}, {"plan", MakePlanTarget},
      {"rpc", MakeRpcTarget},          {"http", MakeHttpTarget},
  };
  return *targets;
}

}  // namespace penstock::fuzz
