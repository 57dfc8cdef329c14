// Named places between two effects that a crash may tear apart. In the programs that ship they do
// nothing; test programs link another definition (tests/server/file_faults.cc), which can kill or
// hold the process there. The names are in the calls: grep FaultPoint.
#pragma once

namespace penstock::server {

void FaultPoint(const char* name);

}  // namespace penstock::server
