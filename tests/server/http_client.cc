#include "tests/server/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace penstock::server {

std::string Get(const std::string& target, const Headers& headers) {
  std::string bytes = absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: localhost\r\n");
  for (const auto& [name, value] : headers) absl::StrAppend(&bytes, name, ": ", value, "\r\n");
  return bytes + "\r\n";
}

int PortOf(const std::string& url) { return std::stoi(url.substr(url.rfind(':') + 1)); }

HttpConnection::HttpConnection(int port) {
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in address {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd_, reinterpret_cast<struct sockaddr*>(&address), sizeof address) != 0) {
    close(fd_);
    fd_ = -1;
  }
}

HttpConnection::~HttpConnection() {
  if (fd_ >= 0) close(fd_);
}

bool HttpConnection::Send(const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

bool HttpConnection::Fill() {
  struct pollfd wait {
    .fd = fd_, .events = POLLIN, .revents = 0
  };
  if (poll(&wait, 1, 30'000) <= 0) return false;
  char bytes[65536];
  const ssize_t n = recv(fd_, bytes, sizeof bytes, 0);
  if (n <= 0) return false;
  buffer_.append(bytes, static_cast<size_t>(n));
  return true;
}

HttpReply HttpConnection::Read(const std::string& method) {
  HttpReply reply;
  size_t end = 0;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
    if (!Fill()) return reply;
  }
  const std::string head = buffer_.substr(0, end);
  buffer_.erase(0, end + 4);
  for (const absl::string_view line : absl::StrSplit(head, "\r\n")) {
    const std::pair<std::string, std::string> field =
        absl::StrSplit(line, absl::MaxSplits(": ", 1));
    reply.headers[absl::AsciiStrToLower(field.first)] = field.second;
  }
  const int status = std::stoi(head.substr(head.find(' ') + 1));
  const bool empty = method == "HEAD" || status == 304;
  const size_t length = empty ? 0 : std::stoul(reply.headers.at("content-length"));
  while (buffer_.size() < length) {
    if (!Fill()) return reply;
  }
  reply.body = buffer_.substr(0, length);
  buffer_.erase(0, length);
  reply.status = status;
  return reply;
}

HttpReply HttpConnection::Ask(const std::string& bytes, const std::string& method) {
  // A server that refuses a long request closes before it has read all of it.
  Send(bytes);
  return Read(method);
}

bool HttpConnection::Closed() {
  char byte = 0;
  return recv(fd_, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

}  // namespace penstock::server
