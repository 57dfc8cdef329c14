// Requests and replies of the HTTP port as values: what a request line means, which hosts are this
// machine, how an error looks. Pure functions; http_server.h moves the bytes.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"

namespace penstock::server {

struct HttpRequest {
  std::string target;         // as it came: "/api/jobs/x?attempt=2"
  std::string host;           // of the Host header
  std::string authorization;  // "Bearer pst_...", or empty
  std::string if_none_match;
};

struct HttpResponse {
  int status = 200;
  std::string content_type;
  std::string body;
};

// Replies once, from any thread. The function given is called on the server's thread, so that text
// is made of a message neither on a gRPC thread nor on the control thread.
using HttpRespond = std::function<void(std::function<HttpResponse()>)>;
// Called on the server's thread and must not block.
using HttpHandler = std::function<void(HttpRequest, HttpRespond)>;

// A target taken apart, percent signs decoded: "/api/jobs/x?attempt=2".
struct HttpTarget {
  std::vector<std::string> path;             // {"api", "jobs", "x"}
  std::map<std::string, std::string> query;  // {{"attempt", "2"}}
};
// InvalidArgument / REQUEST_INVALID for what is no absolute path, is badly encoded, has control
// characters, or has a segment "." or "..".
absl::StatusOr<HttpTarget> ParseTarget(std::string_view target);

// Whether a Host header names this machine: a page of another site that has its name resolve to
// 127.0.0.1 sends its own name.
bool IsLoopbackHost(std::string_view host);

HttpResponse JsonResponse(const google::protobuf::Message& message);
// google.rpc.Status as JSON, under the HTTP status that google/rpc/code.proto gives its code.
HttpResponse ErrorResponse(const absl::Status& status);
// The same under an HTTP status of its own.
HttpResponse ErrorResponse(int http_status, const absl::Status& status);

}  // namespace penstock::server
