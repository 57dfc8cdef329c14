// One WriteUpload stream. It has one piece in flight: the next is asked for when the last lies in
// its file, so a client that is faster than the disk is slowed down by gRPC's flow control, and one
// that sends nothing costs a read that waits.
//
//   gRPC: read -> [control: find the upload, once] -> transfers: check and append -> gRPC: read ...
//
// Exactly one closure or one read is under way at any time; Finish() is called by whichever finds
// the end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "engine/provenance/sha256.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "penstock/v1/transfer_service.pb.h"
#include "server/access/call.h"
#include "server/rpc/services.h"

namespace penstock::server {

// Owns itself until gRPC is done with it.
class WriteUploadReactor final : public grpc::ServerReadReactor<v1::WriteUploadRequest> {
 public:
  WriteUploadReactor(ServiceContext& services, grpc::CallbackServerContext* context,
                     v1::WriteUploadResponse* response);
  void Begin();

  void OnReadDone(bool ok) override;
  void OnDone() override;

 private:
  // Of the first message. Control thread.
  absl::Status FindFile();
  // Queue `transfers`.
  void TakePiece();
  absl::Status StorePiece();
  void End();

  ServiceContext& services_;
  const std::shared_ptr<Call> call_;
  grpc::CallbackServerContext* const context_;
  v1::WriteUploadResponse* const response_;
  bool counted_ = false;

  v1::WriteUploadRequest message_;  // belongs to gRPC while it is read
  std::string upload_;              // empty until the first message
  v1::FileEntry file_;
  // Of what this stream has written, while that is the file from its beginning.
  std::optional<Sha256> hash_;
};

}  // namespace penstock::server
