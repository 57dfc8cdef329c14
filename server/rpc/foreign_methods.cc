#include "server/rpc/foreign_methods.h"

#include <string>

#include "absl/strings/match.h"
#include "grpc/grpc.h"
#include "grpcpp/server_context.h"

namespace penstock::server {
namespace {

using grpc::experimental::InterceptionHookPoints;

// An interceptor cannot answer in place of a handler, but it can end the call before the handler
// has read anything; the client gets the code and the message, without details.
class Gate : public grpc::experimental::Interceptor {
 public:
  Gate(Door& door, grpc::ServerContextBase& context) : door_(door), context_(context) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      if (const absl::Status known = door_.AdmitReader(context_); !known.ok()) {
        grpc_call_cancel_with_status(context_.c_call(), static_cast<grpc_status_code>(known.code()),
                                     std::string(known.message()).c_str(), nullptr);
      }
    }
    methods->Proceed();
  }

 private:
  Door& door_;
  grpc::ServerContextBase& context_;
};

class GateFactory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit GateFactory(Door& door) : door_(door) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    const absl::string_view method = info->method();
    if (absl::StartsWith(method, "/penstock.v1.") ||
        absl::StartsWith(method, "/grpc.health.v1.Health/")) {
      return nullptr;
    }
    return new Gate(door_, *info->server_context());
  }

 private:
  Door& door_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> GateForeignMethods(
    Door& door) {
  return std::make_unique<GateFactory>(door);
}

}  // namespace penstock::server
