// Request and response of a unary call on an arena of their own, for replies of thousands of small
// messages: they are made in a few large pieces of memory and go as a whole.
//
//   service.SetMessageAllocatorFor_ListJobs(&allocator);  // which outlives the server
#pragma once

#include "google/protobuf/arena.h"
#include "grpcpp/support/message_allocator.h"

namespace penstock::server {

template <typename Request, typename Response>
class ArenaMessages final : public grpc::MessageAllocator<Request, Response> {
 public:
  grpc::MessageHolder<Request, Response>* AllocateMessages() override { return new Holder; }

 private:
  class Holder final : public grpc::MessageHolder<Request, Response> {
   public:
    Holder() {
      this->set_request(google::protobuf::Arena::CreateMessage<Request>(&arena_));
      this->set_response(google::protobuf::Arena::CreateMessage<Response>(&arena_));
    }
    void Release() override { delete this; }

   private:
    google::protobuf::Arena arena_;
  };
};

}  // namespace penstock::server
