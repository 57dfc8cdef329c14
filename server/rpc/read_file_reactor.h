// One ReadFile stream. It has one piece in flight and no queue: the next is read when the client
// has taken the last, so one that does not read costs a piece of memory and nothing else.
//
//   control: find the directory, hold it -> transfers: open -> [hash what the client has] -> read
//     -> gRPC: write -> transfers: read ... -> the hash -> OnDone -> control: let go
//
// Exactly one closure or one gRPC operation is under way at any time; Finish() is called by
// whichever finds the end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "engine/provenance/sha256.h"
#include "engine/train/rooted_file.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "penstock/v1/transfer_service.pb.h"
#include "server/access/call.h"
#include "server/jobs/file_sources.h"
#include "server/rpc/services.h"

namespace penstock::server {

// Owns itself until gRPC is done with it.
class ReadFileReactor final : public grpc::ServerWriteReactor<v1::ReadFileResponse> {
 public:
  // `request` lives as long as the call.
  ReadFileReactor(ServiceContext& services, grpc::CallbackServerContext* context,
                  const v1::ReadFileRequest& request);
  void Begin();

  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  void Open(const absl::StatusOr<FileSource>& source);
  absl::Status OpenFile(const FileSource& source);
  void Next();
  // The hash that the upload's announcement has; nothing if there is none on record.
  std::optional<std::string> RecordedHash(const FileSource& source) const;

  ServiceContext& services_;
  const std::shared_ptr<Call> call_;
  grpc::CallbackServerContext* const context_;
  const v1::ReadFileRequest& request_;
  bool counted_ = false;
  bool held_ = false;  // control thread, then OnDone

  std::optional<ReadableFile> file_;
  int64_t offset_ = 0;  // of the next byte to be read: to be hashed alone, before request_.offset()
  Sha256 hash_;
  std::optional<std::string> recorded_;  // instead of hash_, if the client begins in the middle
  v1::ReadFileResponse message_;         // belongs to gRPC while it is written
};

}  // namespace penstock::server
