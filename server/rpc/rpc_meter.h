// Counts the calls of penstock.v1's methods by code, and measures how long those of one request and
// one reply take: from the request's headers to the status that is sent. What is counted is bounded
// by the method table; calls of methods that are not there are not counted.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "grpcpp/support/server_interceptor.h"
#include "grpcpp/support/status.h"

namespace penstock::server {

// Upper bounds in seconds; a last bucket has the rest.
inline constexpr std::array<double, 12> kRpcSeconds = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.05,
                                                       0.1,   0.25,   0.5,   1,    5,    30};

// Of one method that has been called.
struct MethodCalls {
  std::string method;                             // "JobService/GetJob"
  std::map<grpc::StatusCode, int64_t> by_code{};  // streams too
  // Of calls that are no streams; not cumulative.
  std::array<int64_t, kRpcSeconds.size() + 1> buckets{};
  int64_t timed = 0;
  double seconds = 0;
};

// Thread-safe.
class RpcMeter {
 public:
  enum class Kind : uint8_t { kUnary, kStream };
  RpcMeter();
  // `method` is a place in MethodTable().
  void Add(size_t method, Kind kind, grpc::StatusCode code, absl::Duration time);
  // In the order of the method table.
  std::vector<MethodCalls> Calls() const;

 private:
  mutable std::mutex mutex_;
  std::vector<MethodCalls> calls_;  // by place in MethodTable(); guarded by mutex_
};

// For ServerBuilder. `meter` has to outlive the server.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MeterCalls(RpcMeter& meter);

}  // namespace penstock::server
