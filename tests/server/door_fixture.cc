#include "tests/server/door_fixture.h"

#include <chrono>

#include "grpcpp/completion_queue.h"
#include "grpcpp/support/byte_buffer.h"

namespace penstock::server {

RawReply CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                 const std::string& request, const Headers& headers) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  for (const auto& [key, value] : headers) context.AddMetadata(key, value);
  grpc::CompletionQueue queue;
  const auto next = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto call = stub.PrepareCall(&context, "/" + method, &queue);
  call->StartCall(nullptr);
  next();
  const grpc::Slice slice(request);
  call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
  next();
  RawReply reply;
  while (true) {
    grpc::ByteBuffer message;
    call->Read(&message, nullptr);
    if (!next()) break;
    grpc::Slice bytes;
    EXPECT_TRUE(message.DumpToSingleSlice(&bytes).ok());
    reply.messages.emplace_back(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
  }
  call->Finish(&reply.status, nullptr);
  next();
  return reply;
}

}  // namespace penstock::server
