// penstockd with a planner that plans anything: for tests that need a process to kill.
#include "tests/server/test_support.h"

int main(int argc, char** argv) {
  return penstock::server::RunDaemon(argc, argv, penstock::server::FakeHooks());
}
