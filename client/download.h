// Fetches files from the daemon. They are collected in a directory beside the wanted one, which is
// renamed when all are there and have their hashes; a broken download is gone on with, in the
// middle of a file too.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/rpc_client.h"
#include "client/transfer_progress.h"
#include "penstock/v1/transfer_service.pb.h"

namespace penstock::client {

// What the daemon has under this name: its files, whose paths were checked here too.
absl::StatusOr<v1::ListFilesResponse> ListSource(RpcClient& client, const std::string& parent);

struct DownloadArgs {
  std::string parent;  // as in ListFilesRequest
  v1::ListFilesResponse files;
  std::string directory;  // must not exist
};
// Gives the files with the SHA-256 that they have. AlreadyExists / OUTPUT_EXISTS; DataLoss /
// UPLOAD_CORRUPT if a file comes with another hash twice.
absl::StatusOr<v1::ListFilesResponse> Download(RpcClient& client, const DownloadArgs& args,
                                               TransferProgress& progress);

}  // namespace penstock::client
