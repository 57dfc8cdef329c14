// What the HTTP port serves: a table of paths, each answered by the objects behind the gRPC
// services, on the queues that own them.
//
//   /healthz               the process answers                          for everybody
//   /readyz                it takes jobs                                for everybody
//   /  /app.js ...         the page                                     for everybody: it holds
//   nothing /metrics               Prometheus (docs/metrics.md)                 for callers
//   /api/...               replies of the API as JSON, for the page     for callers
//
// Nothing here changes anything, so every role may call.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/admin_service.pb.h"
#include "server/http/http_message.h"
#include "server/http/metrics_collector.h"
#include "server/rpc/services.h"

namespace penstock::server {

// Who sends this Authorization header (empty: none). Unauthenticated for a token that is none, or
// is missing. Called on the server's thread and must not block.
using HttpGate = std::function<absl::StatusOr<v1::Caller>(std::string_view authorization)>;

class HttpSite {
 public:
  // A null gate lets all pass: the port is on loopback and the daemon wants no tokens.
  HttpSite(ServiceContext& services, MetricsCollector& metrics, HttpGate gate)
      : services_(services), metrics_(metrics), gate_(std::move(gate)) {}

  void Handle(const HttpRequest& request, HttpRespond respond) const;
  // Ends what may take long.
  void Stop() { stopping_ = true; }

 private:
  struct Call {
    HttpTarget target;
    std::string job;  // jobs/{id}, checked, where the path has one
    v1::Caller caller;
    HttpRespond respond;
  };
  enum class Access : uint8_t { kEverybody, kCallers };
  struct Route {
    std::vector<std::string_view> path;  // "*" stands for the id of a job
    Access access;
    void (HttpSite::*answer)(const Call& call) const;
  };
  static const std::vector<Route>& Routes();

  // Looks the job up on the control thread and goes on there with it, or replies that there is
  // none.
  void WithJob(const Call& call, std::function<void(const v1::GetJobResponse&)> work) const;

  void Health(const Call& call) const;
  void Ready(const Call& call) const;
  void WebFile(const Call& call) const;
  void Metrics(const Call& call) const;
  void Server(const Call& call) const;
  void Devices(const Call& call) const;
  void Jobs(const Call& call) const;
  void Job(const Call& call) const;
  void JobMetrics(const Call& call) const;
  void JobLog(const Call& call) const;
  void JobCheckpoints(const Call& call) const;
  void JobData(const Call& call) const;

  ServiceContext& services_;
  MetricsCollector& metrics_;
  const HttpGate gate_;
  std::atomic<bool> stopping_ = false;
  // Of JobData, queued or at work. Nobody takes back what a browser that is gone has asked for.
  mutable std::atomic<int> inspections_ = 0;
};

}  // namespace penstock::server
