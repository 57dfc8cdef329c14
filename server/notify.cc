#include "server/notify.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace penstock::server {
namespace {

// A manager's queue may be ten datagrams long (net.unix.max_dgram_qlen). Longest wait for room.
constexpr struct timeval kSendLimit { .tv_sec = 5, .tv_usec = 0 };

void Send(const std::string& state, int flags) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  struct sockaddr_un address {};
  if (path == nullptr || path[0] == '\0' || std::strlen(path) >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path, std::strlen(path));
  const size_t length = offsetof(struct sockaddr_un, sun_path) + std::strlen(path);
  if (path[0] == '@') address.sun_path[0] = '\0';  // the abstract namespace
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kSendLimit, sizeof kSendLimit);
  sendto(fd, state.data(), state.size(), MSG_NOSIGNAL | flags,
         reinterpret_cast<const struct sockaddr*>(&address), static_cast<socklen_t>(length));
  close(fd);
}

}  // namespace

void NotifyServiceManager(const std::string& state) { Send(state, 0); }

void FeedWatchdog() { Send("WATCHDOG=1", MSG_DONTWAIT); }

std::string ReloadingState(std::chrono::microseconds now) {
  return absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", now.count());
}

std::optional<std::chrono::milliseconds> WatchdogInterval() {
  const char* text = std::getenv("WATCHDOG_USEC");
  int64_t usec = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &usec) || usec <= 0) return std::nullopt;
  return std::chrono::milliseconds(std::max<int64_t>(1, usec / 1000));
}

}  // namespace penstock::server
