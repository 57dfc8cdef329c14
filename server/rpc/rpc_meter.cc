#include "server/rpc/rpc_meter.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/time/clock.h"
#include "server/access/method_table.h"

namespace penstock::server {
namespace {

using grpc::experimental::InterceptionHookPoints;
constexpr std::string_view kPackage = "penstock.v1.";

// gRPC's name of a method begins with a slash.
std::optional<size_t> PlaceOf(std::string_view method) {
  if (method.empty()) return std::nullopt;
  method.remove_prefix(1);
  const auto table = MethodTable();
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const MethodRule& rule) { return rule.method == method; });
  if (found == table.end()) return std::nullopt;
  return static_cast<size_t>(found - table.begin());
}

// Lives as long as its call.
class Stopwatch : public grpc::experimental::Interceptor {
 public:
  Stopwatch(RpcMeter& meter, size_t method, RpcMeter::Kind kind)
      : meter_(meter), method_(method), kind_(kind) {}
  ~Stopwatch() override { meter_.Add(method_, kind_, code_, end_ - begin_); }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      code_ = methods->GetSendStatus().error_code();
      end_ = absl::Now();
    }
    methods->Proceed();
  }

 private:
  RpcMeter& meter_;
  const size_t method_;
  const RpcMeter::Kind kind_;
  const absl::Time begin_ = absl::Now();
  // Where no status was sent, the client has gone.
  grpc::StatusCode code_ = grpc::StatusCode::CANCELLED;
  absl::Time end_ = begin_;
};

class StopwatchFactory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit StopwatchFactory(RpcMeter& meter) : meter_(meter) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    const std::optional<size_t> place = PlaceOf(info->method());
    if (!place) return nullptr;
    const bool unary = info->type() == grpc::experimental::ServerRpcInfo::Type::UNARY;
    return new Stopwatch(meter_, *place, unary ? RpcMeter::Kind::kUnary : RpcMeter::Kind::kStream);
  }

 private:
  RpcMeter& meter_;
};

}  // namespace

RpcMeter::RpcMeter() {
  for (const MethodRule& rule : MethodTable()) {
    calls_.push_back({.method = std::string(rule.method.substr(kPackage.size()))});
  }
}

void RpcMeter::Add(size_t method, Kind kind, grpc::StatusCode code, absl::Duration time) {
  const double seconds = absl::ToDoubleSeconds(time);
  const auto bucket = std::lower_bound(kRpcSeconds.begin(), kRpcSeconds.end(), seconds);
  std::lock_guard lock(mutex_);
  MethodCalls& calls = calls_[method];
  ++calls.by_code[code];
  if (kind == Kind::kStream) return;
  ++calls.buckets[static_cast<size_t>(bucket - kRpcSeconds.begin())];
  ++calls.timed;
  calls.seconds += seconds;
}

std::vector<MethodCalls> RpcMeter::Calls() const {
  std::vector<MethodCalls> called;
  std::lock_guard lock(mutex_);
  for (const MethodCalls& calls : calls_) {
    if (!calls.by_code.empty()) called.push_back(calls);
  }
  return called;
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MeterCalls(RpcMeter& meter) {
  return std::make_unique<StopwatchFactory>(meter);
}

}  // namespace penstock::server
