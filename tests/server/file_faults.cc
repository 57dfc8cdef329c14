// Fault points that files command, for programs under test. In the directory that the environment
// variable PENSTOCK_FAULTS names:
//   kill-NAME    the next process that comes to the point removes the file and dies by SIGKILL
//   hold-NAME    it writes its pid to held-NAME and waits until hold-NAME is gone
//   seen         gets a line for every point that was passed
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "server/fault/fault_point.h"

namespace penstock::server {
namespace {

void AppendLine(const std::string& path, const std::string& line) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return;
  // One write: lines of several processes do not mix.
  const ssize_t ignored = write(fd, line.data(), line.size());
  (void)ignored;
  close(fd);
}

}  // namespace

void FaultPoint(const char* name) {
  static const char* const directory = std::getenv("PENSTOCK_FAULTS");
  if (directory == nullptr) return;
  const std::string base = std::string(directory) + "/";
  AppendLine(base + "seen", std::string(name) + "\n");
  if (unlink((base + "kill-" + name).c_str()) == 0) raise(SIGKILL);
  const std::string hold = base + "hold-" + name;
  if (access(hold.c_str(), F_OK) != 0) return;
  std::ofstream(base + "held-" + name) << getpid();
  while (access(hold.c_str(), F_OK) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace penstock::server
