// The HTTP port: connections, limits and headers. What a path means is the handler's.
//
// One thread serves all connections and never waits: a handler answers when it can. What a client
// can take of the daemon is bounded: the connections, the bytes of a request's head, the time in
// which a request has to have come and its reply to be read. GET and HEAD only. When all
// connections are taken, one that has no request in work makes room for the next, so clients that
// send nothing keep nobody out.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/http/http_message.h"

namespace penstock::server {

// PEM files, read again for every connection: a renewed certificate needs no restart.
struct HttpTls {
  std::string certificate;
  std::string key;
};

enum class HostCheck : uint8_t {
  kLoopback,  // the Host header has to name this machine: see IsLoopbackHost
  kNone,      // the port is known by names that we don't know, and wants a token
};

struct HttpOptions {
  std::string address = {};  // "127.0.0.1:0", "[::1]:7071"
  std::optional<HttpTls> tls = std::nullopt;
  HostCheck host_check = HostCheck::kLoopback;
  int64_t max_connections = 128;
  // For a request to come, from when the one before it was answered; for a reply to be read.
  std::chrono::milliseconds read_limit{20'000};
  std::chrono::milliseconds write_limit{20'000};
};

class HttpServer {
 public:
  // FailedPrecondition / CONFIG_INVALID if the address is taken or cannot be, or a PEM file is
  // none.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(HttpOptions options,
                                                           HttpHandler handler);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  // Stop().
  ~HttpServer();

  // Closes every connection. Replies that come later are dropped; the server has to outlive them.
  void Stop();
  // "http://127.0.0.1:7071", with the port that was picked.
  const std::string& url() const { return url_; }

 private:
  class Core;
  explicit HttpServer(std::unique_ptr<Core> core, std::string url);
  std::unique_ptr<Core> core_;
  std::string url_;
};

}  // namespace penstock::server
