#include "tests/server/raw_call.h"

#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"

namespace penstock::server {

RawReply Make(const RawCall& call, const std::shared_ptr<grpc::Channel>& channel) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + call.limit);
  for (const auto& [key, value] : call.headers) context.AddMetadata(key, value);
  grpc::CompletionQueue queue;
  const auto next = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto stream = stub.PrepareCall(&context, "/" + call.method, &queue);
  stream->StartCall(nullptr);
  next();
  for (const std::string& request : call.requests) {
    const grpc::Slice slice(request);
    stream->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    if (!next()) break;  // the call has ended
  }
  stream->WritesDone(nullptr);
  next();
  RawReply reply;
  while (reply.messages.size() < call.most_replies) {
    grpc::ByteBuffer message;
    stream->Read(&message, nullptr);
    if (!next()) break;
    grpc::Slice bytes;
    if (!message.DumpToSingleSlice(&bytes).ok()) break;
    reply.messages.emplace_back(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
  }
  if (reply.messages.size() == call.most_replies) context.TryCancel();
  stream->Finish(&reply.status, nullptr);
  next();
  return reply;
}

}  // namespace penstock::server
