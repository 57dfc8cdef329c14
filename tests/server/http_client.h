// A client for tests of the HTTP port that can send anything.
#pragma once

#include <map>
#include <string>

namespace penstock::server {

using Headers = std::map<std::string, std::string>;

// A request with Host: localhost.
std::string Get(const std::string& target, const Headers& headers = {});
// Of "http://127.0.0.1:7071".
int PortOf(const std::string& url);

struct HttpReply {
  int status = 0;   // 0: the connection was closed without one
  Headers headers;  // names in lower case
  std::string body;
};

class HttpConnection {
 public:
  explicit HttpConnection(int port);
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;
  ~HttpConnection();

  int fd() const { return fd_; }
  // False if the other side has closed.
  bool Send(const std::string& bytes);
  // Waits for one reply, at most 30 s.
  HttpReply Read(const std::string& method);
  HttpReply Ask(const std::string& bytes, const std::string& method = "GET");
  // Whether the other side has closed, without waiting.
  bool Closed();

 private:
  bool Fill();
  int fd_ = -1;
  std::string buffer_;
};

}  // namespace penstock::server
