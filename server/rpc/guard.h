// The door before one service: asks it, then calls the method of the service behind.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "server/access/call.h"
#include "server/rpc/door.h"
#include "server/rpc/grpc_status.h"

namespace penstock::server {

// A stream that is refused before it begins.
template <typename Reactor>
class RefusedStream final : public Reactor {
 public:
  explicit RefusedStream(const absl::Status& status) { this->Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

template <typename Service>
class Guard {
 public:
  // Methods of the service behind. Named by the request and the reply, since each has an overload.
  template <typename Request, typename Response>
  using UnaryMethod = std::type_identity_t<grpc::ServerUnaryReactor* (
      Service::*)(grpc::CallbackServerContext*, const Request*, Response*)>;
  template <typename Request, typename Response>
  using StreamMethod = std::type_identity_t<grpc::ServerWriteReactor<Response>* (
      Service::*)(grpc::CallbackServerContext*, const Request*)>;
  template <typename Request, typename Response>
  using BytesMethod = std::type_identity_t<grpc::ServerReadReactor<Request>* (
      Service::*)(grpc::CallbackServerContext*, Response*)>;

  Guard(Door& door, std::string name, Service& inner)
      : door_(door), name_(std::move(name)), inner_(inner) {}

  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Unary(const char* method, UnaryMethod<Request, Response> call,
                                  grpc::CallbackServerContext* context, const Request* request,
                                  Response* response) const {
    auto admitted = door_.Admit(FullName(method), *context, request);
    if (!admitted.ok()) {
      grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
      reactor->Finish(ToGrpcStatus(admitted.status()));
      return reactor;
    }
    const CallScope scope(*std::move(admitted));
    return (inner_.*call)(context, request, response);
  }

  // The daemon writes.
  template <typename Response, typename Request>
  grpc::ServerWriteReactor<Response>* Stream(const char* method,
                                             StreamMethod<Request, Response> call,
                                             grpc::CallbackServerContext* context,
                                             const Request* request) const {
    auto admitted = door_.Admit(FullName(method), *context, request);
    if (!admitted.ok()) {
      return new RefusedStream<grpc::ServerWriteReactor<Response>>(admitted.status());
    }
    const CallScope scope(*std::move(admitted));
    return (inner_.*call)(context, request);
  }

  // The client writes.
  template <typename Request, typename Response>
  grpc::ServerReadReactor<Request>* Bytes(const char* method, BytesMethod<Request, Response> call,
                                          grpc::CallbackServerContext* context,
                                          Response* response) const {
    auto admitted = door_.Admit(FullName(method), *context, /*request=*/nullptr);
    if (!admitted.ok()) {
      return new RefusedStream<grpc::ServerReadReactor<Request>>(admitted.status());
    }
    const CallScope scope(*std::move(admitted));
    return (inner_.*call)(context, response);
  }

 private:
  std::string FullName(const char* method) const { return absl::StrCat(name_, "/", method); }

  Door& door_;
  const std::string name_;  // "penstock.v1.JobService"
  Service& inner_;
};

}  // namespace penstock::server
