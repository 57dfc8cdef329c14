#include "server/fault/fault_point.h"

namespace penstock::server {

void FaultPoint(const char* /*name*/) {}

}  // namespace penstock::server
